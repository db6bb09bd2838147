NGPU=8 CONFIG_FILE=./train_configs/llama3_8b.toml ./run_llama_train.sh --training.fsdp_reshard_after_forward always --training.batch_size 1 --training.seq_len 8192
