#!/bin/bash
# Written from a plan for accelerate. Data, learning rate and schedule are not in a plan: add them.
# The same estimate: trainledger estimate accelerate.sh --framework-version torch==2.14.1 --framework-version transformers==5.24.0 --set precision.autocast=true --set stack.versions.accelerate=null
ARGS=(
  --model_name_or_path ./accelerate-model  # model
  --per_device_train_batch_size 2  # batch.micro_batch
  --gradient_accumulation_steps 4  # batch.accumulation
  --model_max_length 512  # batch.sequence
  --optim adamw_torch_fused  # optimizer.name
  --max_grad_norm 1.0  # optimizer.grad_clip
  --attn_implementation flash_attention_2  # stack.attention
  --gradient_checkpointing True  # stack.recompute.kind
  --gradient_checkpointing_kwargs '{"use_reentrant": false}'  # stack.recompute.reentrant
  --dtype bfloat16  # precision.weights
  --bf16 False  # precision.compute
  --fp16 False  # precision.compute
)
accelerate launch --config_file accelerate.yaml train.py "${ARGS[@]}"
