NGPU=8 CONFIG_FILE=my/own.toml ./run_train.sh --training.local_batch_size 4
