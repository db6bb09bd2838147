#!/bin/bash
# Written from a plan for trl. Data, learning rate and schedule are not in a plan: add them.
# The same estimate: trainledger estimate trl.sh --framework-version trl==1.16.0 --framework-version torch==2.14.1 --framework-version transformers==5.24.0 --set stack.loss=full-fp32 --set stack.versions.accelerate=null
trl sft --config trl.yaml --num_machines 1 --num_processes 1
