export CUBLAS_WORKSPACE_CONFIG=:4096:8
export NCCL_BUFFSIZE=2097152
export NCCL_NO_SUCH_THING=1
python -u qlora.py --model_name_or_path huggyllama/llama-7b --load_in_4bit --bnb_4bit_quant_type nf4 --use_nested_quant \
  --lora_r 64 --lora_target_modules all-linear --optim paged_adamw_32bit --bf16 --gradient_checkpointing --max_seq_length 512 \
  --per_device_train_batch_size 1 --gradient_accumulation_steps 16 --max_grad_norm 0.3
