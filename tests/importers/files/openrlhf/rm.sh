deepspeed --num_gpus 8 --module openrlhf.cli.train_rm --pretrain meta-llama/Llama-3.1-8B --max_len 8192 --micro_train_batch_size 1 \
  --train_batch_size 256 --zero_stage 3 --bf16 --flash_attn
