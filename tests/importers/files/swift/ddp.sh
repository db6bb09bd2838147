#!/usr/bin/env bash
export PYTORCH_CUDA_ALLOC_CONF='expandable_segments:True'
NPROC_PER_NODE=2 CUDA_VISIBLE_DEVICES=0,1 swift sft \
  --model meta-llama/Llama-3.2-1B --train_type full --dataset data --torch_dtype bfloat16 --max_length 1024 \
  --freeze_parameters_ratio 1 --trainable_parameters model.layers.15 lm_head
