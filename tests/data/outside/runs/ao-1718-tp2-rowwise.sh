NGPU=8 CONFIG_FILE="./train_configs/llama3_8b.toml" ./run_llama_train.sh --training.batch_size 1 --training.seq_len 8192 \
  --training.tensor_parallel_degree 2 --training.compile --float8.enable_float8_linear --float8.recipe_name rowwise
