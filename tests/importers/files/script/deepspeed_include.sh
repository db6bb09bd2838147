deepspeed --include localhost:0,1,2,3 train.py --model_name_or_path mistralai/Mistral-7B-v0.1 --bf16 \
  --max_seq_length 2048 --per_device_train_batch_size 2 --deepspeed '{"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}}'
