ray job submit --address="http://127.0.0.1:8265" --runtime-env-json='{"working_dir": "/openrlhf"}' \
   -- python3 -m openrlhf.cli.train_ppo_ray \
   --ref_num_nodes 1 --ref_num_gpus_per_node 2 --actor_num_nodes 1 --actor_num_gpus_per_node 4 \
   --colocate_all_models --vllm_enable_sleep --vllm_gpu_memory_utilization 0.6 --vllm_num_engines 2 \
   --pretrain meta-llama/Llama-3.1-8B --reward_pretrain meta-llama/Llama-3.1-8B-Instruct --save_path ckpt \
   --micro_train_batch_size 8 --train_batch_size 128 --micro_rollout_batch_size 16 --rollout_batch_size 1024 \
   --prompt_max_len 1024 --generate_max_len 1024 --zero_stage 2 --bf16 --actor_learning_rate 5e-7 \
   --init_kl_coef 0.01 --flash_attn --gradient_checkpointing --adam_offload --advantage_estimator group_norm
