#!/bin/bash
MODEL=meta-llama/Llama-3.2-1B
torchrun --nproc_per_node=2 --nnodes 2 --node_rank 0 --master_port 2000 \
    src/train.py \
    --stage sft \
    --do_train \
    --model_name_or_path ${MODEL} \
    --finetuning_type lora \
    --lora_target q_proj,v_proj \
    --dataset identity --template llama3 \
    --cutoff_len 1024 \
    --per_device_train_batch_size 4 \
    --gradient_accumulation_steps $((64 / 4 / 4)) \
    --optim adamw_torch \
    --bf16
