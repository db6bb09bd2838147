NPROC_PER_NODE=4 swift sft --model Qwen/Qwen2.5-7B --train_type full --dataset data --max_length $LEN \
  --attn_impl flash --deepspeed zero9
