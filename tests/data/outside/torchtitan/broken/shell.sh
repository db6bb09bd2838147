CONFIG_FILE=../llama3_8b_2025.toml NGPU=$GPUS ./run_train.sh --training.seq_len $LEN
