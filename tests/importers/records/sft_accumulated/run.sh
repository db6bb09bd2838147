trl sft --model_name_or_path . --dtype bfloat16 --accelerate_config single_gpu --max_length 4096 --dataset_name my/data \
  --per_device_train_batch_size 2 --gradient_accumulation_steps 2 --output_dir out
