swift sft --model meta-llama/Llama-3.2-1B --tuner_type boft --dataset data --torch_dtype bfloat16 --max_length 512 \
  --boft_block_size 4 --target_modules q_proj v_proj
