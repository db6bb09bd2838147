#!/bin/bash
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
FORCE_TORCHRUN=1 llamafactory-cli train full-z3.yaml per_device_train_batch_size=2 gradient_accumulation_steps=1
