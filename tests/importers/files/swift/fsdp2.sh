NPROC_PER_NODE=4 \
swift sft --model Qwen/Qwen2.5-7B --tuner_type lora --dataset data --torch_dtype bfloat16 \
  --max_length 2048 --gradient_accumulation_steps 4 --fsdp fsdp2
