deepspeed --num_gpus=2 --module openrlhf.cli.train_sft --pretrain meta-llama/Llama-3.1-8B --max_len 1024 \
  --micro_train_batchsize 1 --train_batch_size 16 --zero_stage 1
