torchrun --nnodes 2 --nproc_per_node 4 run_clm.py --model_name_or_path . --torch_dtype float32 --bf16 --optim adamw_torch \
  --block_size 2048 --per_device_train_batch_size 1 --ddp_find_unused_parameters False --output_dir out
