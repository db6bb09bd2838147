export NNODES=2
NPROC_PER_NODE=4 swift pt --model Qwen/Qwen2.5-7B --train_type full --dataset data --torch_dtype bfloat16 \
  --max_length 4096 --deepspeed zero2_offload --gradient_checkpointing_kwargs '{"use_reentrant": false}'
