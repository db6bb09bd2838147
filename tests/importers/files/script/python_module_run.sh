NPROC=${NPROC:-2}
python3 -m torch.distributed.run --standalone --nproc_per_node "$NPROC" -m my.train --model_name_or_path Qwen/Qwen3-4B \
  --bf16 --max_length 1024 --per_device_train_batch_size 1 --gradient_checkpointing \
  --gradient_checkpointing_kwargs '{"use_reentrant": true}' --lr 1
