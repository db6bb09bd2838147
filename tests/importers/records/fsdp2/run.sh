accelerate launch --config_file fsdp2.yaml run_clm.py --model_name_or_path . --dtype float32 --optim adamw_torch \
  --block_size 2048 --per_device_train_batch_size 1 --output_dir out
