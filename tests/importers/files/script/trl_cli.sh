trl sft --model_name_or_path Qwen/Qwen2.5-0.5B --dataset_name trl-lib/Capybara --accelerate_config zero3 --num_processes 4 \
  --per_device_train_batch_size 2 --use_peft --lora_r 16 --lora_target_modules q_proj v_proj --output_dir out
