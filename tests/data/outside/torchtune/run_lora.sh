#!/usr/bin/env bash
#SBATCH --nodes=1
set -e
export CUDA_VISIBLE_DEVICES=0,1 PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
RANK=16
tune download meta-llama/Meta-Llama-3.1-8B-Instruct --output-dir /data/m
tune run --nnodes 1 --nproc_per_node 2 lora_finetune_distributed --config 8b_lora.yaml \
  model.lora_rank=${RANK} \
  "model.lora_attn_modules=[q_proj,k_proj,v_proj]" \
  batch_size=1 dtype=bf16 enable_activation_checkpointing=True
