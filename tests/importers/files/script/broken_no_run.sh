#!/bin/bash
pip install torch
echo done
