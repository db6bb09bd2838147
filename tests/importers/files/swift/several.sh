# two devices, one process: the model is spread over both
CUDA_VISIBLE_DEVICES=0,1 swift sft --model Qwen/Qwen2.5-7B --train_type lora --dataset data --torch_dtype bfloat16 \
  --max_length 2048 --max_lenght 4096
