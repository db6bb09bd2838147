#!/bin/bash
CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file ../accelerate/nothing.yaml \
    src/train.py lora-sft.yaml
