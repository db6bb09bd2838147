#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3
export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
accelerate launch --num_processes 4 -m axolotl.cli.train full-zero3.yml --micro-batch-size 2
