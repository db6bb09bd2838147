CUDA_VISIBLE_DEVICES=0 swift sft --model Qwen/Qwen2.5-7B --tuner_type lora --dataset data \
  --quant_bits 4 --quant_method bnb --max_length 1024 --optim paged_adamw_8bit --lora_rank 16 --attn_impl sdpa
