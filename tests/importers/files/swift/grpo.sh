CUDA_VISIBLE_DEVICES=0,1,2,3 NPROC_PER_NODE=4 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-7B \
  --reward_funcs accuracy --use_vllm true --vllm_mode colocate --vllm_gpu_memory_utilization 0.5 \
  --train_type full --torch_dtype bfloat16 --dataset data --max_length 2048 --max_completion_length 1024 \
  --num_generations 8 --deepspeed zero3 --sleep_level 1 --offload_model true
