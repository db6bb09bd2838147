swift sft --model meta-llama/Llama-3.2-1B --tuner_type full --dataset data --torch_dtype bfloat16 --max_length 512 \
  --use_galore true --galore_rank 64 --galore_optim_per_parameter true
