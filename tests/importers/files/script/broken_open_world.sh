torchrun --nproc_per_node $(nvidia-smi -L | wc -l) train.py --model_name_or_path Qwen/Qwen3-4B --max_length 1024 \
  --per_device_train_batch_size $BATCH --output_dir $OUT
