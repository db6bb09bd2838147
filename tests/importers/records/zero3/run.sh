deepspeed --num_gpus 8 run_clm.py --model_name_or_path . --deepspeed ds.json --bf16 True --optim adamw_torch \
  --block_size 2048 --per_device_train_batch_size 1 --gradient_checkpointing True --output_dir out
