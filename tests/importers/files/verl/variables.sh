ACTOR=Qwen/Qwen2.5-7B
LEN=$((1024 * 2))
ARGS=(actor_rollout_ref.model.path="$ACTOR" data.max_response_length=$LEN data.max_prompt_length=${PROMPT:-1024})
python -m verl.trainer.main_ppo "${ARGS[@]}" actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2 \
  actor_rollout_ref.actor.ppo_mini_batch_size=64 trainer.n_gpus_per_node=8 trainer.nnodes=2
