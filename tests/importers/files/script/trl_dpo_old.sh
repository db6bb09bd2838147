CUDA_VISIBLE_DEVICES=0 python examples/scripts/dpo.py \
    --dataset_name=trl-lib/ultrafeedback_binarized \
    --model_name_or_path=Qwen/Qwen2.5-0.5B --torch_dtype=bfloat16 \
    --per_device_train_batch_size 4 --learning_rate 1e-3 --gradient_accumulation_steps 1 \
    --logging_steps 10 --output_dir=dpo --optim rmsprop --warmup_steps 150 --report_to wandb --bf16 \
    --logging_first_step --no_remove_unused_columns --use_peft --lora_r=16 --lora_alpha=16
