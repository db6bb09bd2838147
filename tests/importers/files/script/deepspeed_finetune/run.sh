MODEL="meta-llama/Llama-3.1-8B"
NUM_GPUS=8
DS=ds_z3.json
ARGS=(
  --model_name_or_path "$MODEL"
  --deepspeed "$DS"
  --bf16 true
  --max_seq_length 4096       # tokens
  --per_device_train_batch_size 1
  --gradient_accumulation_steps 4
  --gradient_checkpointing true
)
ARGS+=(--learning_rate 1e-5 --output_dir "out/$(date +%F)")
CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 deepspeed --num_gpus $NUM_GPUS --master_port 29600 finetune.py "${ARGS[@]}"
