deepspeed --module openrlhf.cli.train_sft --pretrain --max_len 128 --micro_train_batch_size 1
