read -r -d '' training_commands <<EOF
openrlhf.cli.train_sft \
   --max_len 4096 \
   --dataset Open-Orca/OpenOrca \
   --train_batch_size 256 \
   --micro_train_batch_size 2 \
   --pretrain meta-llama/Llama-3.1-8B \
   --zero_stage 2 \
   --bf16 --flash_attn --packing_samples --gradient_checkpointing
EOF
if [[ ${1} != "slurm" ]]; then
    deepspeed --num_gpus 8 --module $training_commands
fi
