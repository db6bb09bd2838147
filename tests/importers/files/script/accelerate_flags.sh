accelerate launch --num_processes 4 --num_machines 1 --mixed_precision bf16 --use_fsdp --fsdp_version 2 \
  --fsdp_auto_wrap_policy TRANSFORMER_BASED_WRAP --fsdp_transformer_layer_cls_to_wrap Qwen3DecoderLayer \
  --fsdp_reshard_after_forward true \
  sft.py --model_name_or_path Qwen/Qwen3-4B --dtype bfloat16 --max_length 4096 --per_device_train_batch_size 1 \
  --dataset_name trl-lib/Capybara --output_dir out
