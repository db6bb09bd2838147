NGPU=4 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh \
  --training.num_tokens_per_microbatch_per_dp_rank 65536 --training.max_context_length 2048 \
  --compile.enable --compile.components model loss
