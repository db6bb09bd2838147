#!/bin/bash
MODEL=meta-llama/Llama-2-7b-hf
litgpt download $MODEL --access_token=$HF
litgpt finetune_lora "$MODEL" \
  --precision bf16-true --quantize bnb.nf4 --data JSON --data.json_path data.json \
  --train.micro_batch_size 1 --train.global_batch_size=128 --train.max_seq_length 1304 \
  --lora_r 8 --out_dir out
