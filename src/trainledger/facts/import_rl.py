"""Keys of verl's and OpenRLHF's command lines: of the policy's update, and of roles that are not counted."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.base.units import MIB
from trainledger.facts import import_verl_megatron as megatron
from trainledger.facts.import_rows import FilledRow, KeyRow, nothing, read, uncounted
from trainledger.facts.option_row import Direction

VERL = Source(
    "verl trainer configuration", "verl/trainer/config/{ppo_trainer,sft_trainer}.yaml and its parts", "b178a3c, 2026-01"
)
WORKERS = Source("verl FSDP workers", "verl/workers/fsdp_workers.py; workers/actor/dp_actor.py", "b178a3c, 2026-01")
OPENRLHF = Source("OpenRLHF command lines", "openrlhf/cli/train_{sft,dpo,rm,ppo_ray}.py", "v0.5 to 3c3be62, 2026-08")
DEEPSPEED = Source(
    "OpenRLHF's DeepSpeed configuration", "openrlhf/utils/deepspeed/deepspeed_utils.py", "3c3be62, 2026-08"
)

ACTOR, MODEL, ROLLOUT, REF = (f"actor_rollout_ref.{one}." for one in ("actor", "model", "rollout", "ref"))
SHARE, ENGINE_TP, FREES = (
    f"{ROLLOUT}{one}" for one in ("gpu_memory_utilization", "tensor_model_parallel_size", "free_cache_engine")
)
BUCKET, BUCKETS = f"{ROLLOUT}update_weights_bucket_megabytes", "sglang"  # and the engine that is sent buckets
SCORED, REF_SCORED = f"{ROLLOUT}log_prob_micro_batch_size_per_gpu", f"{REF}log_prob_micro_batch_size_per_gpu"
KL = (f"{ACTOR}use_kl_loss", "algorithm.use_kl_in_reward")
AWAY = (f"{ACTOR}fsdp_config.param_offload", f"{ACTOR}fsdp_config.optimizer_offload")
CRITIC, REWARD = "critic.", "reward_model."
VERL_VALUED = (  # of critics and reward models: what counts, and what moves no memory
    f"""
{CRITIC}ulysses_sequence_parallel_size {CRITIC}model.enable_gradient_checkpointing {CRITIC}model.lora_rank
{CRITIC}model.target_modules {CRITIC}model.fsdp_config.param_offload {CRITIC}model.fsdp_config.optimizer_offload
{CRITIC}forward_micro_batch_size_per_gpu {REWARD}micro_batch_size_per_gpu {REWARD}model.fsdp_config.param_offload
""",
    f"""
{CRITIC}optim.lr {CRITIC}optim.lr_* {CRITIC}optim.weight_decay {CRITIC}optim.betas {CRITIC}optim.min_lr_ratio
{CRITIC}optim.warmup_style {CRITIC}optim.num_cycles {CRITIC}optim.total_training_steps {CRITIC}cliprange_value
{CRITIC}ppo_epochs {CRITIC}ppo_mini_batch_size {CRITIC}shuffle {CRITIC}loss_agg_mode {CRITIC}model.tokenizer_path
{CRITIC}model.lora_alpha {CRITIC}model.trust_remote_code {CRITIC}checkpoint.* {CRITIC}profiler.* {CRITIC}_target_
{CRITIC}model._target_ {CRITIC}rollout_n {REWARD}model.trust_remote_code {REWARD}model.input_tokenizer
{REWARD}reward_manager {REWARD}launch_reward_fn_async {REWARD}max_length
""",
)
VERL_ACTING = (BUCKET, SHARE, ENGINE_TP, FREES, SCORED, REF_SCORED, *KL, *AWAY, "critic.enable", "critic.model.path",
               "critic.ppo_micro_batch_size_per_gpu", "reward_model.enable", "reward_model.model.path")  # fmt: skip
EACH, SPREAD, PER_NODE, NODES = (
    "_per_gpu",
    "ulysses_sequence_parallel_size",
    "trainer.n_gpus_per_node",
    "trainer.nnodes",
)
TUNED_TOGETHER = "data.micro_batch_size"
TOGETHER = (  # sizes that count every rank's sequences; with EACH behind the name one rank's
    f"{ACTOR}ppo_micro_batch_size", f"{ROLLOUT}log_prob_micro_batch_size", f"{REF}log_prob_micro_batch_size",
    f"{CRITIC}ppo_micro_batch_size", f"{CRITIC}forward_micro_batch_size", f"{REWARD}micro_batch_size",
    TUNED_TOGETHER,
)  # fmt: skip
MICRO = f"{ACTOR}ppo_micro_batch_size{EACH}"
MINI = f"{ACTOR}ppo_mini_batch_size"
TOKENS, CRITIC_TOKENS = f"{ACTOR}ppo_max_token_len_per_gpu", "critic.ppo_max_token_len_per_gpu"
SCORED_TOKENS, REF_SCORED_TOKENS = (f"{one}log_prob_max_token_len_per_gpu" for one in (ROLLOUT, REF))
DYNAMIC = f"{ACTOR}use_dynamic_bsz"
PRECISIONS = {"fp32": "fp32", "bf16": "bf16", "fp16": "fp16", "bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
ENGINES = {"fsdp": "fsdp1", "fsdp2": "fsdp2"}
ESTIMATORS = {"grpo": "grpo", "gae": "ppo"}
# estimators that verl registers, of which gae alone reads values; others may be the user's own, or misspelt
ADVANTAGES = (
    "gae", "grpo", "grpo_passk", "grpo_vectorized", "gpg", "opo", "optimal_token_baseline", "reinforce_plus_plus",
    "reinforce_plus_plus_baseline", "remax", "rloo", "rloo_vectorized", "tir_optimal_token_baseline",
)  # fmt: skip
KEPT = "trainer.max_actor_ckpt_to_keep"
VERL_READ = f"""
algorithm.adv_estimator data.max_prompt_length data.max_response_length {MODEL}path
{MODEL}enable_gradient_checkpointing {MODEL}lora_rank {MODEL}lora_adapter_path {MODEL}target_modules
{MODEL}use_liger {ACTOR}strategy {MICRO}
{MINI} {ACTOR}use_dynamic_bsz {TOKENS} {ACTOR}ulysses_sequence_parallel_size
{ACTOR}grad_clip {ACTOR}fsdp_config.fsdp_size {ACTOR}fsdp_config.model_dtype {ACTOR}fsdp_config.dtype
{ACTOR}fsdp_config.reshard_after_forward {ACTOR}fsdp_config.forward_prefetch {ACTOR}fsdp_config.offload_policy
{ACTOR}megatron.tensor_model_parallel_size {ACTOR}megatron.pipeline_model_parallel_size
{ACTOR}megatron.context_parallel_size {ACTOR}megatron.expert_model_parallel_size
{ACTOR}megatron.expert_tensor_parallel_size {ACTOR}megatron.virtual_pipeline_model_parallel_size {ROLLOUT}n
trainer.n_gpus_per_node trainer.nnodes {KEPT} model.partial_pretrain model.enable_gradient_checkpointing model.lora_rank
model.target_modules model.strategy model.use_liger model.fsdp_config.model_dtype model.fsdp_config.cpu_offload
model.fsdp_config.offload_params data.micro_batch_size_per_gpu data.train_batch_size data.max_length
ulysses_sequence_parallel_size optim.clip_grad
"""
# what other roles hold beside the policy while it trains, or before and after
VERL_ROLES = f"""
{ROLLOUT}data_parallel_size {ROLLOUT}name
{ROLLOUT}max_num_batched_tokens {ROLLOUT}max_num_seqs {ROLLOUT}max_model_len
{ROLLOUT}enforce_eager {ROLLOUT}dtype
{ROLLOUT}layered_summon {ROLLOUT}expert_parallel_size
{REF}strategy {REF}fsdp_config.* {REF}megatron.*
{REF}ulysses_sequence_parallel_size critic.* reward_model.*
{ACTOR}calculate_entropy
"""
VERL_EITHER = f"""
{MODEL}use_remove_padding {MODEL}use_fused_kernels {MODEL}fused_kernel_options.* {MODEL}enable_activation_offload
{MODEL}tiled_mlp.* {MODEL}override_config.* {MODEL}exclude_modules {MODEL}mtp.*
{ACTOR}fsdp_config.mixed_precision.* {ACTOR}fsdp_config.wrap_policy.*
{ACTOR}fsdp_config.use_orig_params {ACTOR}entropy_from_logits_with_chunking {ACTOR}entropy_checkpointing
{ACTOR}use_torch_compile {ACTOR}fsdp_config.use_torch_compile {ACTOR}use_fused_kernels {ACTOR}megatron.*
{ACTOR}optim.optimizer {ACTOR}optim.optimizer_impl {ACTOR}freeze_vision_tower {ACTOR}use_remove_padding
model.fsdp_config.wrap_policy.* use_remove_padding data.balance_dp_token
"""
VERL_SILENT = f"""
algorithm.* data.* {MODEL}* {ACTOR}* {ROLLOUT}* {REF}* trainer.* global_profiler.* custom_reward_function.*
reward_manager.* ray_init.* ray_kwargs.* transfer_queue.* hydra.* actor_rollout_ref.hybrid_engine
actor_rollout_ref.nccl_timeout model.* optim.* sandbox_fusion.* reward.* _target_ defaults
"""
VERL_ROWS: tuple[KeyRow, ...] = (
    *read(
        VERL,
        (*VERL_READ.split(), *VERL_ACTING, *TOGETHER, CRITIC_TOKENS, SCORED_TOKENS, REF_SCORED_TOKENS, *megatron.READ),
    ),
    *nothing(VERL, megatron.QUIET),
    *read(VERL, VERL_VALUED[0].split()),
    *nothing(VERL, VERL_VALUED[1].split()),
    *uncounted(VERL, ((name, Direction.LOW) for name in VERL_ROLES.split())),
    *uncounted(VERL, ((name, Direction.EITHER) for name in VERL_EITHER.split())),
    *nothing(VERL, VERL_SILENT.split()),
)
VERL_FILLED: tuple[FilledRow, ...] = (
    FilledRow("stack.attention", "flash", "attn_implementation flash_attention_2", WORKERS),
    FilledRow("stack.recompute", {"kind": "full", "reentrant": False}, "enable_gradient_checkpointing true", VERL),
    FilledRow("precision.weights", "fp32", "fsdp_config.model_dtype fp32", VERL),
    FilledRow("precision.compute", "bf16", "fsdp_config.dtype bfloat16", VERL),
    FilledRow("precision.gradients", "fp32", "gradients of fp32 shards", WORKERS),
    FilledRow("precision.reduce", "fp32", "mixed precision's reduce_dtype fp32", WORKERS),
    FilledRow("precision.master", None, "weights are fp32 themselves", WORKERS),
    FilledRow("optimizer.name", "adamw", "optim.optimizer AdamW", VERL),
    FilledRow("optimizer.grad_clip", 1.0, "grad_clip 1.0", VERL),
)
# what supervised training has where the file does not say
VERL_TUNING = (
    FilledRow("batch.micro_batch", 4, "data.micro_batch_size_per_gpu 4", VERL),
    FilledRow("batch.sequence", 1024, "data.max_length 1024", VERL),
    FilledRow("batch.global", 256, "data.train_batch_size 256", VERL),
)
# what roles have where the file does not say; a reference with FSDP's own offload lies in the host's memory
VERL_ENGINE = (
    FilledRow("roles.rollout.engine.memory_share", 0.5, "rollout.gpu_memory_utilization 0.5", VERL),
    FilledRow("roles.rollout.parallel.tp", 2, "rollout.tensor_model_parallel_size 2", VERL),
    FilledRow("roles.rollout.precision.weights", "bf16", "rollout.dtype bfloat16", VERL),
)
VERL_BUCKET = FilledRow(
    "roles.rollout.engine.bucket", 512 * MIB, "SGLang is sent weights in buckets, update_weights_bucket_megabytes 512",
    Source("verl's SGLang engine", "verl/workers/rollout/sglang_rollout/{sglang_rollout,utils}.py", "0.7.0"),
)  # fmt: skip
VERL_SLEEP = FilledRow("roles.rollout.engine.sleep_level", 2, "free_cache_engine true; vLLM drops its weights", WORKERS)
VERL_TUNED = FilledRow("roles.rollout.engine.sleep_level", 1, "free_cache_engine true; with LoRA weights stay", WORKERS)
VERL_REF = FilledRow(
    "roles.reference.states.idle", "offloaded", "FSDP's CPUOffload of a model that is only run", WORKERS
)
VERL_LOSS = FilledRow("stack.loss", "full", "log-probabilities by flash-attn's cross-entropy", WORKERS)
VERL_TOKENS = FilledRow("batch.sequence", 16384, "ppo_max_token_len_per_gpu 16384", VERL)
CRITIC_FILLED = FilledRow("roles.critic.batch.sequence", 32768, "critic.ppo_max_token_len_per_gpu 32768", VERL)
VERL_NODE = FilledRow("parallel.world", 8, "trainer.n_gpus_per_node 8", VERL)
PROMPT = FilledRow("batch.sequence", 512, "data.max_prompt_length 512, data.max_response_length 512", VERL)

# OpenRLHF: the plan's key, and the arguments that say it, newest name first
NAMES: dict[str, tuple[str, ...]] = {
    "model": ("--actor.model_name_or_path", "--model.model_name_or_path", "--pretrain"),
    "micro": ("--train.micro_batch_size", "--micro_train_batch_size"),
    "global": ("--train.batch_size", "--train_batch_size"),
    "length": ("--data.max_len", "--max_len"),
    "prompt": ("--prompt_max_len",),
    "answer": ("--generate_max_len", "--max_new_tokens", "--rollout.max_new_tokens"),
    "stage": ("--ds.zero_stage", "--zero_stage"),
    "dtype": ("--ds.param_dtype", "--param_dtype"),
    "bf16": ("--bf16",),
    "recompute": ("--actor.gradient_checkpointing_enable", "--model.gradient_checkpointing_enable",
                  "--gradient_checkpointing"),
    "reentrant": ("--actor.gradient_checkpointing_reentrant", "--model.gradient_checkpointing_reentrant",
                  "--gradient_checkpointing_use_reentrant"),
    "attention": ("--ds.attn_implementation", "--attn_implementation"),
    "flash": ("--flash_attn",),
    "offload": ("--ds.adam_offload", "--adam_offload"),
    "rank": ("--ds.lora.rank", "--lora_rank"),
    "targets": ("--ds.lora.target_modules", "--target_modules"),
    "dropout": ("--ds.lora.dropout", "--lora_dropout"),
    "nf4": ("--ds.load_in_4bit", "--load_in_4bit"),
    "liger": ("--ds.use_liger_kernel", "--use_liger_kernel"),
    "accumulated": ("--ds.grad_accum_dtype", "--grad_accum_dtype"),
    "overlap": ("--ds.overlap_comm", "--overlap_comm"),
    "hpz": ("--ds.zpg", "--zpg"),
    "tp": ("--ds.tensor_parallel_size", "--ds_tensor_parallel_size"),
    "cp": ("--ds.ring_attn_size", "--ring_attn_size"),
    "clip": ("--max_norm", "--actor.max_norm"),
    "estimator": ("--algo.advantage.estimator", "--advantage_estimator"),
    "gpus": ("--actor.num_gpus_per_node", "--actor_num_gpus_per_node"),
    "nodes": ("--actor.num_nodes", "--actor_num_nodes"),
    "optimizer": ("--optim",),
    "kept": ("--max_ckpt_num",),
    "export": ("--save_hf_ckpt",),
}  # fmt: skip
# likewise, of roles
ACTING: dict[str, tuple[str, ...]] = {
    "engines": ("--vllm.num_engines", "--vllm_num_engines"),
    "engine_tp": ("--vllm.tensor_parallel_size", "--vllm_tensor_parallel_size"),
    "share": ("--vllm.gpu_memory_utilization", "--vllm_gpu_memory_utilization"),
    "sleep": ("--vllm.enable_sleep", "--vllm_enable_sleep"),
    "together": ("--train.colocate_all", "--colocate_all_models"),
    "with_reference": ("--train.colocate_actor_ref", "--colocate_actor_ref"),
    "kl": ("--algo.kl.init_coef", "--init_kl_coef"),
    "reference_away": ("--ref.offload", "--ref_offload", "--ref_reward_offload"),
    "reward_away": ("--reward.offload", "--ref_reward_offload"),
    "critic": ("--critic.model_name_or_path", "--critic_pretrain"),
    "reward": ("--reward.model_name_or_path", "--reward_pretrain"),
    "scorer": ("--reward.remote_url", "--remote_rm_url", "--train.agent_func_path", "--agent_func_path"),
    "forward": ("--rollout.micro_batch_size", "--micro_rollout_batch_size"),
    **{
        f"{role}_{word}": (f"--{role}.num_{name}", f"--{role}_num_{name}")
        for role in ("ref", "critic", "reward")
        for word, name in (("nodes", "nodes"), ("gpus", "gpus_per_node"))
    },
}
OPENRLHF_ENGINE = FilledRow("roles.rollout.engine.memory_share", 0.95, "vllm_gpu_memory_utilization 0.95", OPENRLHF)
OPENRLHF_LOSS = FilledRow("stack.loss", "full", "log-probabilities by flash-attn's cross-entropy", OPENRLHF)
NODE = 8  # devices of a role's node where none are named
ACTOR_NODE = FilledRow("parallel.world", NODE, f"actor_num_gpus_per_node {NODE}", OPENRLHF)
VALUES = "gae"  # the estimator of advantages, the default one, that reads values
PROGRAMS = {"train_sft": "sft", "train_dpo": "dpo", "train_rm": "reward", "train_kto": "kto", "train_ppo_ray": "ppo",
            "train_ppo": "ppo"}  # fmt: skip
ROLES = """
--ref.* --reward.* --critic.* --vllm.* --rollout.max_tokens_per_gpu --train.colocate_*
--train.enable_ema --colocate_critic_reward --ref_pretrain --enable_ema
--enforce_eager --rollout_max_tokens_per_gpu
"""
UNSETTLED = """
--ds.packing_samples --packing_samples --train.dynamic_batch_enable --train.max_tokens_per_gpu --use_dynamic_batch
--train_max_tokens_per_gpu --ds.deepcompile --deepcompile --ds.enable_sleep --deepspeed_enable_sleep
--ds.ring_attn_head_stride --ring_head_stride --ds.experts_implementation --algo.kl.* --use_kl_loss
--entropy_loss_coef --actor.entropy_loss_coef --ptx_coef --actor_init_on_gpu --nll_loss_coef --model.nll_loss_coef
--freeze_visual_encoder
"""
QUIET = """
--ckpt.* --logger.* --eval.* --data.* --algo.* --rollout.* --actor.* --model.* --train.* --ds.* --adam.* --muon.*
--save_path --save_steps --disable_ds_ckpt --logging_steps --eval_steps --ckpt_path
--max_ckpt_mem --load_checkpoint --use_ds_universal_ckpt --seed --full_determinism --local_rank
--disable_fast_tokenizer --dataloader_num_workers --max_epochs --num_episodes --aux_loss_coef --learning_rate
--actor_learning_rate --critic_learning_rate --lr_warmup_ratio --lr_scheduler --min_lr_ratio --l2 --adam_betas
--lora_alpha --dataset --dataset_probs --eval_dataset --dataset_split --eval_split --max_samples --train_split
--multiturn --input_key --output_key --input_template --apply_chat_template --tokenizer_chat_template --use_wandb
--wandb_org --wandb_group --wandb_project --wandb_run_name --use_tensorboard --use_ms --perf --pretrain_mode --beta
--ipo --label_smoothing --prompt_key --chosen_key --rejected_key --rollout_batch_size --n_samples_per_prompt
--prompt_data --prompt_data_probs --prompt_split --label_key --normalize_reward --top_p --temperature --eps_clip
--eps_clip_low_high --dual_clip --value_clip --lambd --gamma --kl_target --kl_horizon --kl_estimator
--policy_loss_type --reward_clip_range --no_advantage_std_norm --freezing_actor_steps --save_value_network
--value_head_prefix --eval_temperature --eval_n_samples_per_prompt
--vllm_sync_backend --vllm_sync_with_ray --enable_prefix_caching --async_train --async_queue_size --partial_rollout
--dynamic_filtering --dynamic_filtering_reward_range --ema_beta --best_metric_key --image_key
--max_images_per_prompt --overlong_buffer_len --overlong_penalty_factor
"""
OPENRLHF_ROWS: tuple[KeyRow, ...] = (
    *read(OPENRLHF, dict.fromkeys(name for names in (*NAMES.values(), *ACTING.values()) for name in names)),
    *uncounted(OPENRLHF, ((name, Direction.LOW) for name in ROLES.split())),
    *uncounted(OPENRLHF, ((name, Direction.EITHER) for name in UNSETTLED.split())),
    *nothing(OPENRLHF, QUIET.split()),
)
OPENRLHF_FILLED: tuple[FilledRow, ...] = (
    FilledRow("stack.attention", "flash", "attn_implementation flash_attention_2", OPENRLHF, since="0.9"),
    FilledRow("stack.recompute", "none", "no gradient checkpointing", OPENRLHF),
    FilledRow("parallel.strategy", "zero2", "zero_stage 2", OPENRLHF),
    FilledRow("precision.weights", "bf16", "param_dtype bf16", OPENRLHF),
    FilledRow("precision.compute", "bf16", "param_dtype bf16", OPENRLHF),
    FilledRow("precision.master", "fp32", "DeepSpeed keeps the master weights in fp32", DEEPSPEED),
    FilledRow("optimizer.name", "adamw", "FusedAdam, its weight decay apart", DEEPSPEED),
    FilledRow("optimizer.grad_clip", 1.0, "max_norm 1.0", OPENRLHF),
    FilledRow("batch.micro_batch", 8, "micro batch of 8", OPENRLHF),
    FilledRow("batch.sequence", 2048, "max_len 2048", OPENRLHF),
)
POLICY_BATCH = FilledRow("batch.micro_batch", 1, "micro batch of 1 of train_ppo_ray", OPENRLHF)
