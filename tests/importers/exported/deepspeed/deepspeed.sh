#!/bin/bash
# Written from a plan for deepspeed. Data, learning rate and schedule are not in a plan: add them.
# The same estimate: trainledger estimate deepspeed.sh --framework-version torch==2.14.1 --framework-version transformers==5.24.0 --set stack.versions.accelerate=null --set stack.versions.deepspeed=null
ARGS=(
  --model_name_or_path ./deepspeed-model  # model
  --per_device_train_batch_size 2  # batch.micro_batch
  --gradient_accumulation_steps 4  # batch.accumulation
  --model_max_length 512  # batch.sequence
  --optim adamw_torch_fused  # optimizer.name
  --max_grad_norm 1.0  # optimizer.grad_clip
  --attn_implementation flash_attention_2  # stack.attention
  --gradient_checkpointing True  # stack.recompute.kind
  --gradient_checkpointing_kwargs '{"use_reentrant": false}'  # stack.recompute.reentrant
  --deepspeed deepspeed.json  # parallel.strategy
  --dtype bfloat16  # precision.weights
  --bf16 True  # precision.compute
  --fp16 False  # precision.compute
)
deepspeed --num_nodes 2 --num_gpus 8 train.py "${ARGS[@]}"
