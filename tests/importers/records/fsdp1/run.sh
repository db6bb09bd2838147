accelerate launch --num_processes 2 --use_fsdp --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --fsdp_sharding_strategy 1 \
  --fsdp_backward_prefetch BACKWARD_PRE --fsdp_forward_prefetch false --mixed_precision no \
  tune.py --model_name_or_path . --torch_dtype bfloat16 --use_flash_attn True --optim adamw_torch --max_seq_length 2048 \
  --per_device_train_batch_size 2 --gradient_checkpointing True --output_dir out
