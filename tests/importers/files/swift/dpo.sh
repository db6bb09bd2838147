CUDA_VISIBLE_DEVICES=0 swift rlhf --rlhf_type dpo --model Qwen/Qwen2.5-7B --train_type lora --dataset data \
  --torch_dtype bfloat16 --max_length 2048 --gradient_accumulation_steps 16 --rpo_alpha 0.1 --lora_dtype bfloat16
