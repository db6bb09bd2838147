CUDA_VISIBLE_DEVICES=0 python llm_sft.py --model_id_or_path Qwen/Qwen2.5-7B --sft_type lora --dtype bf16 \
  --dataset data --max_length 1024 --batch_size 1 --gradient_accumulation_steps 16 --lora_rank 8 \
  --lora_dropout_p 0 --lora_target_modules q_proj k_proj v_proj --optim adamw_torch --use_flash_attn true
