"""ms-swift's command lines and files: their keys and what they mean for memory, and what is done where one is left out.
Keys of TrainingArguments are the Trainer's own rows."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow, KeyRow, nothing, read, uncounted
from trainledger.facts.option_row import Direction

LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER
ARGUMENTS = Source("ms-swift's arguments", "swift/arguments/*.py; swift/llm/argument/*.py", "2.6 to 4.6")
TRAINER = Source("ms-swift, arguments of its trainers", "swift/trainers/arguments.py", "3.0 to 4.6")
CHECKPOINT = Source("ms-swift, its checkpoint function", "swift/trainers/mixin.py, _fix_gradient_checkpointing", "4.6")
LOGITS = Source("ms-swift, logits of labels alone", "swift/trainers/mixin.py, get_use_logits_to_keep", "4.6")

_READ = """
model model_id_or_path model_type tuner_type train_type sft_type torch_dtype dtype attn_impl use_flash_attn max_length
lora_rank lora_dropout lora_dropout_p target_modules lora_target_modules modules_to_save lora_modules_to_save
target_parameters lora_dtype lora_bias lora_bias_trainable use_dora quant_method quant_bits quantization_bit
bnb_4bit_quant_type
bnb_4bit_use_double_quant bnb_4bit_comp_dtype bnb_4bit_compute_dtype packing padding_free sequence_parallel_size
per_device_train_batch_size batch_size gradient_accumulation_steps gradient_checkpointing
gradient_checkpointing_kwargs gradient_checkpointing_kwargs.* use_liger use_liger_kernel rlhf_type deepspeed
deepspeed.* fsdp zero_hpz_partition_size deepspeed_autotp_size use_galore galore_rank galore_update_proj_gap
galore_scale galore_proj_type galore_target_modules galore_optim_per_parameter optimizer freeze_parameters
freeze_parameters_ratio freeze_parameters_regex trainable_parameters trainable_parameters_regex use_logits_to_keep
cpo_alpha ref_model adapters vera_rank boft_block_size boft_block_num boft_n_butterfly_factor boft_dropout
fourier_n_frequency adalora_init_r use_vllm vllm_mode vllm_gpu_memory_utilization
vllm_tensor_parallel_size sleep_level offload_optimizer offload_model reward_model rpo_alpha
beta neftune_alpha neftune_noise_alpha loss_type bf16 fp16 eval_strategy val_dataset cached_val_dataset
split_dataset_ratio streaming
"""
_NOTHING = """
model_revision task_type new_special_tokens local_repo_path init_strategy template template_type system
truncation_strategy truncation_direction agent_template norm_bbox use_chat_template padding_side loss_scale
is_binary_loss_scale template_backend response_prefix enable_thinking preserve_thinking add_non_thinking_prefix
disable_ignore_empty_think tools_prompt dataset cached_dataset
data_seed dataset_seed dataset_num_proc preprocess_num_proc load_from_cache_file dataset_shuffle
val_dataset_shuffle interleave_prob stopping_strategy shuffle_buffer_size download_mode columns strict
disable_auto_column_mapping model_name model_author custom_dataset_info check_dataset_strategy dataset_test_ratio
train_dataset_sample val_dataset_sample custom_train_dataset_path custom_val_dataset_path self_cognition_sample
max_new_tokens temperature top_k top_p repetition_penalty num_beams stream stop_words logprobs top_logprobs
structured_outputs_regex tuner_backend seed load_args load_data_args packing_num_proc packing_strategy
lazy_tokenize use_hf hub_token ddp_timeout ddp_backend ignore_args_error use_swift_lora external_plugins
custom_register_path enable_npu_model_patch swanlab_* add_version add_output_dir_suffix create_checkpoint_symlink
output_dir learning_rate lora_alpha lorap_lr_ratio lora_lr_ratio use_rslora init_weights
init_lora_weights lora_ga_* fourier_scaling vera_projection_prng_key vera_d_initial adalora_target_r adalora_tinit
adalora_tfinal adalora_deltaT adalora_beta1 adalora_beta2 adalora_orth_reg_weight check_model acc_strategy
acc_steps train_dataloader_shuffle max_epochs aligner_lr vit_lr resume_only_model eval_metric metric callbacks
early_stop_interval logging_first_step safe_serialization max_shard_size report_to dataloader_num_workers
lr_scheduler_type lr_scheduler_kwargs weight_decay adam_beta2 warmup_ratio group_by_length
enable_channel_loss label_smoothing ld_alpha discopop_tau loss_weights simpo_gamma
desirable_weight undesirable_weight center_rewards_coefficient sft_alpha sft_beta lmbda seq_kd gkd_logits_topk
reward_funcs reward_weights reward_template reward_model_revision reward_model_type reward_model_plugin
log_completions epsilon epsilon_high delta num_iterations overlong_filter soft_* cosine_* repetition_n_grams
repetition_max_penalty scale_rewards log_entropy top_entropy_quantile importance_sampling_level tau_pos tau_neg
advantage_estimator kl_in_reward dynamic_sample max_resample_times multi_turn_scheduler max_turns use_gym_env
gym_env vllm_server_* vllm_enforce_eager vllm_enable_prefix_caching vllm_max_num_seqs
vllm_limit_mm_per_prompt vllm_disable_custom_all_reduce vllm_reasoning_parser structured_* move_model_batches
async_generate ref_model_type ref_model_revision ref_model_mixup_alpha ref_model_sync_steps teacher_model_type
teacher_model_revision whiten_rewards kl_coef cliprange vf_coef cliprange_value gamma lam num_sample_generations
missing_eos_penalty eval_use_evalscope eval_dataset eval_dataset_args eval_limit eval_generation_config
extra_eval_args predict_with_generate do_sample merge_lora logging_dir freeze_vit freeze_aligner
max_pixels problem_type use_flash_ckpt lazy_preprocess preprocess self_cognition_* hub_* push_hub_strategy
create_repo router_aux_loss_coef vit_gradient_checkpointing max_model_len rescale_image wandb_* dynamic_* chord_*
rlsd_* fipo_* sdar_* real_tau generation_config sortish_sampler generation_max_length generation_num_beams
new_line_between_* to_cached_dataset write_batch_size adapter_act fourier_* remove_unused_columns data_shuffle
zero_args tools dataset_enable_cache max_dataset_length model_cache_dir
"""
_UNCOUNTED: tuple[tuple[str, Direction], ...] = (
    *((name, HIGH) for name in (
        "lisa_activated_layers lisa_step_interval offload_teacher_model "
        "freeze_llm max_memory quantization_hqq_dynamic galore_quantization galore_proj_* optimizer_cpu_offload "
        "activation_cpu_offload"
    ).split()),
    *((name, LOW) for name in (
        "num_labels gpu_memory_utilization vllm_max_model_len "
        "vllm_max_lora_rank vllm_quantization vllm_speculative_config vllm_enable_* vllm_data_parallel_size "
        "vllm_pipeline_parallel_size vllm_use_async_engine vllm_engine_kwargs "
        "reward_adapters teacher_model teacher_adapters teacher_model_server max_completion_length "
        "num_generations generation_batch_size steps_per_generation response_length sync_ref_model "
        "galore_with_embedding enable_dft_loss num_ppo_epochs num_mini_batches "
        "local_rollout_forward_batch_size ds3_gather_for_generation ref_adapters"
    ).split()),
    *((name, EITHER) for name in (
        "rope_scaling experts_impl device_map target_regex hqq_axis bnb_4bit_quant_storage packing_length "
        "llamapro_num_new_blocks llamapro_num_groups adapter_length reft_* vera_dropout galore_cos_threshold "
        "galore_gamma_proj galore_queue_size teacher_deepspeed model_kwargs model_kwargs.* "
        "resume_from_checkpoint_adapter mrl_dims unsloth_* longlora_* ia3_* "
    ).split()),
)  # fmt: skip

SWIFT_KEYS: tuple[KeyRow, ...] = (
    *read(ARGUMENTS, _READ.split()),
    *nothing(ARGUMENTS, _NOTHING.split()),
    *uncounted(ARGUMENTS, _UNCOUNTED),
)

# What ms-swift hands the Trainer where a key is left out; `path` is the Trainer's argument.
SWIFT_FILLED: tuple[FilledRow, ...] = (
    FilledRow("per_device_train_batch_size", 1, "per_device_train_batch_size 1", TRAINER),
    FilledRow("per_device_eval_batch_size", 1, "per_device_eval_batch_size 1", TRAINER),
    FilledRow("gradient_checkpointing", True, "gradient_checkpointing true", TRAINER),
    FilledRow("lora_r", 8, "lora_rank 8", ARGUMENTS),
    FilledRow("lora_dropout", 0.05, "lora_dropout 0.05", ARGUMENTS),
    FilledRow("lora_target_modules", "all-linear", "target_modules all-linear", ARGUMENTS, since="3.0"),
    FilledRow("bnb_4bit_quant_type", "nf4", "bnb_4bit_quant_type nf4", ARGUMENTS),
    FilledRow("bnb_4bit_use_double_quant", True, "bnb_4bit_use_double_quant true", ARGUMENTS),
    FilledRow("bf16", True, "bf16 where the device has it", ARGUMENTS),
)
REENTRANT = FilledRow("gradient_checkpointing_kwargs", {"use_reentrant": True}, "its checkpoint function", CHECKPOINT)
DDP_REENTRANT = FilledRow(
    "gradient_checkpointing_kwargs", {"use_reentrant": False}, "its checkpoint function under DDP", CHECKPOINT
)
DTYPE = FilledRow("dtype", "bfloat16", "torch_dtype of the model's config.json, bfloat16 assumed", ARGUMENTS)
KEPT_LOGITS = FilledRow("use_logits_to_keep", True, "logits of labels alone", LOGITS, since="3.6")


@dataclass(frozen=True, slots=True)
class StepBatch:
    """Sequences of one optimizer step over all ranks, from which the accumulation follows where it is left out."""

    sequences: int
    source: Source


STEP_BATCH = StepBatch(16, TRAINER)
ATTENTION = {
    "flash_attn": "flash_attention_2", "flash_attention_2": "flash_attention_2", "auto": "", "eager": "eager",
    "flash_attention_3": "flash_attention_3", "flash_attention_4": "flash_attention_4", "sdpa": "sdpa",
    "flex_attention": "flex_attention",
}  # fmt: skip
TASKS = {
    "dpo": "dpo", "orpo": "orpo", "simpo": "simpo", "cpo": "simpo", "kto": "kto", "rm": "reward", "ppo": "ppo",
    "grpo": "grpo", "gkd": "distill",
}  # fmt: skip
TUNERS_READ = {
    "lora": "lora", "full": "", "adalora": "adalora", "vera": "vera", "boft": "boft", "fourierft": "fourierft",
}  # fmt: skip
DTYPES = {
    "bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16", "float32": "float32",
    "fp32": "float32",
}  # fmt: skip
BITS = (4, 8)  # that bitsandbytes stores
SWIFT_NEWEST = FilledRow("stack.versions.ms-swift", "4.6", "the newest release that was read", ARGUMENTS)
SWIFT_TRL = FilledRow(
    "stack.versions.trl",
    "0.29.1",
    "the newest TRL that ms-swift installs",
    Source("ms-swift's requirements", "requirements/framework.txt: trl>=0.15,<1.0", "4.6.0"),
)
_GRPO = Source("ms-swift GRPO arguments", "swift/arguments/rlhf_args.py; swift/rlhf_trainers/args_mixin.py", "4.6.0")
SWIFT_BETA = FilledRow(
    "roles.reference.placement", "colocated", "beta 0.04: the reference is a second model, no adapter is trained", _GRPO
)
SWIFT_SHARE = FilledRow("roles.rollout.engine.memory_share", 0.9, "vllm_gpu_memory_utilization 0.9", _GRPO)
SWIFT_SERVER = FilledRow("roles.rollout.placement", 1, "a server's devices are not said: one is taken", _GRPO)
