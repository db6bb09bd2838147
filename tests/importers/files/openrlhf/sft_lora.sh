read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \
   --max_len 4096 \
   --dataset Open-Orca/OpenOrca \
   --train_batch_size 256 \
   --micro_train_batch_size 2 \
   --pretrain meta-llama/Llama-3.1-8B \
   --zero_stage 3 \
   --bf16 --lora_rank 64 --lora_alpha 64 --load_in_4bit --gradient_checkpointing --gradient_checkpointing_use_reentrant
EOF
if [[ ${1} != "slurm" ]]; then
    deepspeed --num_gpus 8 --module $training_commands
fi
