"""Keys that TRL's configurations add to TrainingArguments, and what each means for memory."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow, KeyRow, nothing, read, uncounted
from trainledger.facts.option_row import Direction
from trainledger.facts.phases import DISTILL

TRL = Source("TRL configurations", "trl/trainer/{sft,dpo,kto,reward,grpo,model}_config.py", "0.9.6 to 1.16.0")
LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER

SIMPO = Source("SimPO's own trainer", "princeton-nlp/SimPO, scripts/simpo_config.py, SimPOConfig", "2024-07")
TRL_KEYS: tuple[KeyRow, ...] = (
    *read(
        TRL,
        (
            "packing packing_strategy padding_free loss_type activation_offloading precompute_ref_log_probs "
            "sync_ref_model use_logits_to_keep use_num_logits_to_keep use_liger_loss beta max_prompt_length "
            "max_completion_length max_target_length num_generations gradient_checkpointing_use_reentrant "
            "completion_only_loss assistant_only_loss use_vllm vllm_mode vllm_gpu_memory_utilization "
            "vllm_tensor_parallel_size vllm_enable_sleep_mode force_use_ref_model rpo_alpha cpo_alpha "
            "precompute_ref_batch_size teacher_model_name_or_path disable_dropout use_weighting "
            "steps_per_generation reward_model_name_or_path"
        ).split(),
    ),
    *nothing(SIMPO, ("gamma_beta_ratio",)),
    *nothing(
        TRL,
        (
            "lmbda seq_kd max_new_tokens "
            "config eval_packing pad_to_multiple_of pad_token eos_token truncation_mode shuffle_dataset "
            "label_smoothing simpo_gamma loss_weights ld_alpha f_divergence_type f_alpha_divergence_coef discopop_tau "
            "ref_model_mixup_alpha ref_model_sync_steps desirable_weight "
            "undesirable_weight center_rewards_coefficient label_pad_token_id padding_value generate_during_eval "
            "is_encoder_decoder num_of_sequences chars_per_token router_aux_loss_coef temperature top_p top_k min_p "
            "repetition_penalty generation_kwargs chat_template_kwargs epsilon epsilon_high delta reward_weights "
            "scale_rewards mask_truncated_completions importance_sampling_level log_completions "
            "num_completions_to_print log_unique_prompts wandb_log_unique_prompts log_completions_hub_repo "
            "reward_funcs vllm_server_base_url vllm_server_host vllm_server_port "
            "vllm_server_timeout vllm_group_port reference_free base_model_attribute_name tools "
            "sanity_check top_entropy_quantile sapo_temperature_neg sapo_temperature_pos "
            "use_bias_correction_kl max_tool_calling_iterations log_multimodal vllm_importance_sampling_correction "
            "vllm_importance_sampling_mode vllm_importance_sampling_cap vllm_importance_sampling_clip_max "
            "vllm_importance_sampling_clip_min off_policy_mask_threshold multi_objective_aggregation "
            "model_adapter_name ref_adapter_name num_generations_eval vllm_model_impl vllm_structured_outputs_regex "
            "vllm_guided_decoding_regex vespo_k_pos vespo_k_neg vespo_lambda_pos vespo_lambda_neg "
            "use_adaptive_entropy entropy_coef_min entropy_coef_max entropy_coef_delta entropy_target"
        ).split(),
    ),
    *uncounted(
        TRL,
        (
            ("vllm_max_model_length", EITHER),
            ("teacher_model_init_kwargs", EITHER),
            ("ds3_gather_for_generation", LOW),
            ("cast_lm_head_to_fp32", LOW),
            ("num_iterations", LOW),
            ("generation_batch_size", EITHER),
            ("entropy_coef", LOW),
            ("cache_implementation", EITHER),
            ("use_transformers_paged", EITHER),
            ("use_transformers_continuous_batching", EITHER),
            ("transformers_continuous_batching_config", EITHER),
            ("ref_model_init_kwargs", EITHER),
        ),
    ),
)
VLLM_SHARE = FilledRow("roles.rollout.engine.memory_share", 0.3, "vllm_gpu_memory_utilization 0.3", TRL)
VLLM_COLOCATED = "1.0"  # the release from which vLLM is colocated unless a server is asked for
VLLM_SERVER = FilledRow(
    "roles.rollout.placement", 1, "a server's devices are not said: trl vllm-serve takes one",
    Source("TRL vllm-serve", "trl/scripts/vllm_serve.py; trl/trainer/grpo_config.py, vllm_mode", "0.15.2 to 1.16.0"),
)  # fmt: skip
VLLM_SLEEP = 2  # the level at which its trainers put vLLM to sleep
# Names that TRL's configurations alone have, and what is trained where some of them stand.
SIGNS = frozenset(
    (
        "use_peft packing dataset_train_split dataset_test_split assistant_only_loss "
        "completion_only_loss num_generations precompute_ref_log_probs max_prompt_length "
        "packing_strategy padding_free max_completion_length sync_ref_model lora_task_type "
        "center_rewards_coefficient desirable_weight cpo_alpha simpo_gamma gamma_beta_ratio "
        "teacher_model_name_or_path"
    ).split()
)
TASK_SIGNS: dict[str, str] = {  # those that one trainer alone has before those that several have
    "teacher_model_name_or_path": DISTILL,
    "num_generations": "grpo",
    "desirable_weight": "kto",
    "undesirable_weight": "kto",
    "center_rewards_coefficient": "reward",
    "cpo_alpha": "simpo",
    "simpo_gamma": "simpo",
    "gamma_beta_ratio": "simpo",
    "precompute_ref_log_probs": "dpo",
    "max_completion_length": "grpo",
    "max_prompt_length": "dpo",
    "sync_ref_model": "dpo",
}
# What a script or a command of TRL trains, by its name: TRL's own, its examples, alignment-handbook's.
TRL_COMMANDS: dict[str, str] = {
    "sft": "sft", "dpo": "dpo", "kto": "kto", "grpo": "grpo", "reward": "reward", "orpo": "orpo", "run_sft": "sft",
    "run_dpo": "dpo", "run_orpo": "orpo", "reward_modeling": "reward", "sft_trainer": "sft", "dpo_trainer": "dpo",
    "cpo": "simpo", "run_kto": "kto", "run_grpo": "grpo", "sft_video_llm": "sft", "sft_vlm": "sft",
    "sft_gpt_oss": "sft", "gkd": DISTILL, "rloo": "grpo", "rloo_vlm": "grpo", "grpo_vlm": "grpo", "gspo": "grpo",
    "gspo_vlm": "grpo", "grpo_agent": "grpo", "dpo_vlm": "dpo", "sft_gemma3": "sft", "sft_nemotron_3": "sft",
}  # fmt: skip
RLOO, RLOO_SINCE = ("rloo", "rloo_vlm"), "0.22"  # reads its sequences as GRPO does from this release on
# Scripts and commands of TRL whose trainers have no task of a plan's (examples/scripts, 0.9 to 1.9).
TRL_UNREAD = frozenset(
    (
        "ppo ppo_tldr ppo_multi_adapter online_dpo online_dpo_vlm dpo_online nash_md xpo prm bco async_grpo minillm "
        "sdft sdpo tpo gold rloo_tldr alignprop ddpo"
    ).split()
)
TRAINER_SCRIPTS: dict[str, str] = {"run_clm": "pretrain", "run_mlm": "pretrain", "run_clm_no_trainer": "pretrain"}
_WRAPPED = {"fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP", "fsdp_offload_params": False}
_EIGHT: dict[str, object] = {"num_processes": 8, "num_machines": 1, "mixed_precision": "bf16"}


def _zero(stage: int, init: bool) -> dict[str, object]:
    return {
        **_EIGHT,
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": {"zero_stage": stage, "zero3_init_flag": init},
    }


# Configurations that TRL brings, by the name that `--accelerate_config` takes (trl/accelerate_configs, 0.19 to 1.16).
ACCELERATE_PROFILES: dict[str, dict[str, object]] = {
    "single_gpu": {**_EIGHT, "distributed_type": "NO", "num_processes": 1},
    "multi_gpu": {**_EIGHT, "distributed_type": "MULTI_GPU"},
    "zero1": _zero(1, False),
    "zero2": _zero(2, False),
    "zero3": _zero(3, True),
    "fsdp1": {
        **_EIGHT,
        "distributed_type": "FSDP",
        "fsdp_config": {
            **_WRAPPED,
            "fsdp_version": 1,
            "fsdp_reshard_after_forward": "FULL_SHARD",
            "fsdp_backward_prefetch": "BACKWARD_PRE",
            "fsdp_forward_prefetch": True,
            "fsdp_use_orig_params": True,
        },
    },
    "fsdp2": {
        **_EIGHT,
        "distributed_type": "FSDP",
        "fsdp_config": {**_WRAPPED, "fsdp_version": 2, "fsdp_reshard_after_forward": True},
    },
}
