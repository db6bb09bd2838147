deepspeed --module openrlhf.cli.train_sft --max_len long --micro_train_batch_size 0 --zero_stage 5 --ds.param_dtype int4
