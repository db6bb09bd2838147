python3 -m verl.trainer.main_ppo data.max_prompt_length=abc actor_rollout_ref.actor.strategy=deepspeed trainer.n_gpus_per_node=0
