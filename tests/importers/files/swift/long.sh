NPROC_PER_NODE=8 swift sft --model Qwen/Qwen2.5-7B --train_type full --dataset data --torch_dtype bfloat16 \
  --max_length 65536 --sequence_parallel_size 8 --attn_impl flash_attn --deepspeed zero3 --padding_free true
