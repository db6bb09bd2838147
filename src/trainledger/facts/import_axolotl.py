"""Axolotl's YAML: its keys and what they mean for memory, and what it does where a key is left out."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow, KeyRow, nothing, read, uncounted
from trainledger.facts.option_row import Direction

LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER
SCHEMA = Source("Axolotl's configuration", "axolotl/utils/schemas/*.py", "0.9.2, 0.18.0")
TRAINER = Source("Axolotl, arguments of its trainers", "axolotl/core/builders/base.py, causal.py, rl.py", "0.18.0")
LOADER = Source("Axolotl's model loader", "axolotl/loaders/model.py, adapter.py", "0.18.0")

_READ = """
base_model adapter lora_model_dir lora_r lora_alpha lora_dropout lora_target_modules lora_target_linear
lora_modules_to_save lora_target_parameters lora_rank_pattern lora_rank_pattern.* peft_use_dora
peft_autocast_adapter_dtype peft_layers_to_transform load_in_8bit load_in_4bit
bnb_config_kwargs.* bf16 fp16 bfloat16 float16 float32 gradient_checkpointing gradient_checkpointing_kwargs
gradient_checkpointing_kwargs.* activation_offloading sequence_len sample_packing pad_to_sequence_len
pad_to_multiple_of micro_batch_size gradient_accumulation_steps batch_size optimizer optim_args optim_target_modules
max_grad_norm flash_attention sdp_attention xformers_attention flex_attention eager_attention attn_implementation
deepspeed deepspeed.* fsdp fsdp_config fsdp_config.* fsdp_version torch_compile rl reward_model pretraining_dataset
pretraining_dataset.* dp_shard_size dp_replicate_size tensor_parallel_size context_parallel_size
sequence_parallel_degree expert_parallel_size liger_rope liger_rms_norm liger_layer_norm liger_swiglu
liger_glu_activation liger_cross_entropy liger_fused_linear_cross_entropy cut_cross_entropy chunked_cross_entropy
plugins fp32_norms eval_batch_size lora_mlp_kernel lora_qkv_kernel lora_o_kernel lora_embedding_kernel
ddp_bucket_cap_mb ddp_broadcast_buffers ddp_find_unused_parameters
neftune_noise_alpha noisy_embedding_alpha torch_empty_cache_steps selective_checkpointing
unfrozen_parameters trl.use_vllm cpo_alpha rpo_alpha save_total_limit save_only_model save_strategy
load_best_model_at_end val_set_size test_datasets dpo_use_weighting dpo_loss_type trl.beta trl.max_completion_length
trl.num_generations trl.vllm_mode trl.vllm_enable_sleep_mode trl.steps_per_generation vllm.gpu_memory_utilization
vllm.tensor_parallel_size
"""
_NOTHING = """
base_model_config cls_model_config tokenizer_config tokenizer_use_fast tokenizer_legacy tokenizer_use_mistral_common
tokenizer_type processor_type processor_kwargs processor_kwargs.* tokenizer_save_jinja_files trust_remote_code
model_type type_of_model model_revision revision_of_model output_dir hub_model_id hub_strategy hub_revision
save_safetensors special_tokens special_tokens.* is_falcon_derived_model is_llama_derived_model
is_mistral_derived_model is_qwen_derived_model strict resume_from_checkpoint auto_resume_from_checkpoints
mean_resizing_embeddings reinit_weights datasets datasets.* test_datasets.*
shuffle_merged_datasets shuffle_before_merging_datasets dataset_prepared_path dataset_shard_num dataset_shard_idx
skip_prepare_dataset num_dataset_shards_to_save dataset_processes dataset_num_proc dataset_exact_deduplication
dataset_keep_in_memory dataloader_pin_memory dataloader_num_workers dataloader_prefetch_factor dataloader_drop_last
accelerator_config accelerator_config.* remove_unused_columns push_dataset_to_hub hf_use_auth_token device
local_rank seed ddp ddp_timeout metric_for_best_model
greater_is_better loss_watchdog_threshold loss_watchdog_patience gc_steps gc_collect_steps tf32
excess_length_strategy eval_sequence_len min_sample_len max_prompt_len sample_packing_group_size
sample_packing_bin_size sample_packing_sequentially sample_packing_mp_start_method eval_sample_packing
curriculum_sampling multipack_real_batches group_by_length pretrain_multipack_buffer_size pretrain_multipack_attn
pretraining_sample_concatenation streaming streaming_multipack_buffer_size train_on_inputs learning_rate
embedding_lr embedding_lr_scale weight_decay lr_scheduler lr_scheduler_kwargs lr_scheduler_kwargs.*
lr_quadratic_warmup cosine_min_lr_ratio cosine_constant_lr_ratio lr_div_factor lr_groups lr_groups.* adam_epsilon
adam_epsilon2 adam_beta1 adam_beta2 adam_beta3 dion_lr dion_momentum num_epochs max_steps warmup_steps warmup_ratio
eval_steps evals_per_epoch eval_strategy evaluation_strategy save_steps saves_per_epoch
save_first_step logging_steps early_stopping_patience
profiler_steps profiler_steps_start include_tokens_per_second include_tkps use_tensorboard use_wandb use_mlflow
use_comet use_trackio wandb_* mlflow_* hf_mlflow_log_artifacts comet_* trackio_* gradio_* use_otel_metrics
otel_metrics_* ray_run_name resources_per_worker resources_per_worker.* chat_template chat_template_jinja
chat_template_kwargs chat_template_kwargs.* eot_tokens default_system_message fix_untrained_tokens is_preprocess
preprocess_iterable total_num_tokens total_supervised_tokens sample_packing_eff_est axolotl_config_path
rl_beta dpo_beta orpo_alpha simpo_gamma kto_desirable_weight kto_undesirable_weight
dpo_label_smoothing dpo_loss_weights center_rewards_coefficient
lora_fan_in_fan_out lora_alpha_pattern lora_alpha_pattern.* loraplus_lr_ratio loraplus_lr_embedding
peft_use_rslora peft_init_lora_weights merge_lora merge_method qlora_sharded_model_loading embeddings_skip_upcast
low_cpu_mem_usage experimental_skip_move_to_device heads_k_stride ring_attn_func torchdistx_path
dynamic_checkpoint dynamic_checkpoint.* jagged_restart_* debug world_size fsdp_final_state_dict_type
eval_table_size eval_max_new_tokens bench_dataset bench_split hf_token xpu strict_weight_tying
use_eaft eaft_alpha eaft_k added_tokens_overrides added_tokens_overrides.* torch_compile_backend
image_size image_resize_algorithm role_boundaries unsloth_rope generate_samples num_generation_samples
generation_* flex_attn_compile_kwargs flex_attn_compile_kwargs.* lm_eval_* swanlab_* use_swanlab
save_to_hub push_to_hub trl.temperature trl.top_p trl.top_k trl.min_p trl.repetition_penalty
trl.reward_funcs trl.reward_weights trl.log_completions trl.scale_rewards trl.epsilon trl.epsilon_high
trl.loss_type trl.mask_truncated_completions trl.num_completions_to_print trl.vllm_server_*
"""
_UNCOUNTED: tuple[tuple[str, Direction], ...] = (
    *((name, HIGH) for name in (
        "lisa_n_layers lisa_step_interval lisa_layers_attribute layer_offloading tiled_mlp tiled_mlp_num_shards "
        "lora_on_cpu gpu_memory_limit max_memory max_memory.* freeze_mm_modules unsloth_cross_entropy_loss "
        "unsloth_lora_mlp unsloth_lora_qkv unsloth_lora_o unsloth_rms_norm relora_cpu_offload deepcompile "
        "precompute_ref_log_probs dpo_padding_free dpo_use_liger_kernel dpo_use_logits_to_keep use_kernels "
        "lora_exclude_modules trl.use_liger_loss gradient_checkpointing_offload shrink_embeddings"
    ).split()),
    *((name, LOW) for name in (
        "auto_find_batch_size do_causal_lm_eval do_bench_eval eval_causal_lm_metrics tokens "
        "resize_token_embeddings_to_32x "
        "peft_trainable_token_indices "
        "peft_trainable_token_indices.* peft_layer_replication trl.sync_ref_model dpo_generate_during_eval vllm vllm.* "
        "use_pose pose_* kd_* nemo_gym_*"
    ).split()),
    *((name, EITHER) for name in (
        "overrides_of_model_config overrides_of_model_config.* model_config model_config.* overrides_of_model_kwargs "
        "overrides_of_model_kwargs.* rope_scaling rope_scaling.* fp8 fp8_enable_fsdp_float8_all_gather gptq gptq_* "
        "model_quantization_config model_quantization_config_kwargs model_quantization_config_kwargs.* qat qat.* "
        "quantization quantization.* relora relora_* peft peft.* peft_layers_pattern "
        "peft_ensure_weight_tying "
        "flash_attn_cross_entropy flash_attn_rms_norm flash_attn_fuse_mlp flash_attn_fuse_qkv "
        "flash_optimum s2_attention "
        "sage_attention scaling_softmax scaling_softmax_* large_head_attention flash_attn_d512 sdpa_varlen "
        "fused_attn_kernel gemma4_hybrid_attn_impl experts_implementation quantize_moe_experts "
        "llama4_linearized_experts "
        "chunked_cross_entropy_num_chunks liger_rms_norm_gated liger_use_token_scaling batch_flattening device_map "
        "num_labels process_reward_model trainer_cls torch_compile_mode torch_compile_options torch_compile_options.* "
        "fp32_norm_classes use_ray ray_num_workers dion_rank_fraction dion_rank_multiple_of qgalore_* spectrum_* "
        "moe_* use_scattermoe use_sonicmoe dense_mixer diffusion diffusion.* llmcompressor llmcompressor.* "
        "expert_parallel_* use_onebitllms adapter_* mora mora.* trl.* ebft ebft.* grokfast_* hatchery hatchery.* "
        "max_packed_sequence_len use_dft dsv4_* nvfp4_* gemma4_* expert_backend nonexpert_quantization"
    ).split()),
)  # fmt: skip

AXOLOTL_KEYS: tuple[KeyRow, ...] = (
    *read(SCHEMA, _READ.split()),
    *nothing(SCHEMA, _NOTHING.split()),
    *uncounted(SCHEMA, _UNCOUNTED),
)
# The Trainer's arguments and the keys that hand them on as they are, in both directions.
SAVED = ("save_total_limit", "save_only_model", "save_strategy", "load_best_model_at_end")
SAME: tuple[tuple[str, str], ...] = (
    ("optim_args", "optim_args"),
    ("max_grad_norm", "max_grad_norm"),
    ("ddp_bucket_cap_mb", "ddp_bucket_cap_mb"),
    ("ddp_broadcast_buffers", "ddp_broadcast_buffers"),
    ("ddp_find_unused_parameters", "ddp_find_unused_parameters"),
    ("neftune_noise_alpha", "neftune_noise_alpha"),
    ("torch_empty_cache_steps", "torch_empty_cache_steps"),
    *((name, name) for name in SAVED),
)
BATCH_SAME = (
    ("per_device_train_batch_size", "micro_batch_size"),
    ("gradient_accumulation_steps", "gradient_accumulation_steps"),
)
ADAPTER_SAME = (
    ("lora_dropout", "lora_dropout"),
    ("lora_modules_to_save", "lora_modules_to_save"),
    ("lora_target_parameters", "lora_target_parameters"),
    ("use_dora", "peft_use_dora"),
)
LIGER = (  # Liger's kernels by the Trainer's names, and the keys that turn each on
    ("rope", ("liger_rope",)),
    ("rms_norm", ("liger_rms_norm",)),
    ("swiglu", ("liger_glu_activation", "liger_swiglu")),
    ("cross_entropy", ("liger_cross_entropy",)),
    ("fused_linear_cross_entropy", ("liger_fused_linear_cross_entropy",)),
)
SAMPLING_SAME = (  # GRPO's arguments by TRL's names, and the keys of two sections that say them
    *((name, ("trl", name)) for name in (
        "beta", "max_completion_length", "num_generations", "use_vllm", "vllm_mode", "vllm_enable_sleep_mode",
        "steps_per_generation",
    )),
    ("vllm_gpu_memory_utilization", ("vllm", "gpu_memory_utilization")),
    ("vllm_tensor_parallel_size", ("vllm", "tensor_parallel_size")),
)  # fmt: skip
DEGREES = (  # the plan's degrees, and the keys that say them
    ("parallel.tp", ("tensor_parallel_size",)),
    ("parallel.cp", ("context_parallel_size", "sequence_parallel_degree")),
    ("parallel.ep", ("expert_parallel_size",)),
)
AXOLOTL_NEWEST = FilledRow("stack.versions.axolotl", "0.18.0", "the newest release that was read", SCHEMA)
MISTAKEN = {  # keys that people write and Axolotl does not have -> the one it has
    "sequence_length": "sequence_len",
    "max_seq_length": "sequence_len",
    "max_length": "sequence_len",
    "lora_rank": "lora_r",
    "per_device_train_batch_size": "micro_batch_size",
    "model_name_or_path": "base_model",
    "optim": "optimizer",
    "flash_attn": "flash_attention",
    "gradient_checkpoint": "gradient_checkpointing",
    "quantization_bit": "load_in_4bit",
}

# What Axolotl hands the Trainer where a key is left out; `path` is the Trainer's argument.
AXOLOTL_FILLED: tuple[FilledRow, ...] = (
    FilledRow("max_length", 512, "sequence_len 512", SCHEMA),
    FilledRow("per_device_train_batch_size", 1, "micro_batch_size 1", SCHEMA),
    FilledRow("gradient_accumulation_steps", 1, "gradient_accumulation_steps 1", SCHEMA),
    FilledRow("optim", "adamw_torch_fused", "optimizer adamw_torch_fused", SCHEMA),
    FilledRow("bf16", True, "bf16 auto, on a device that has it", SCHEMA),
    FilledRow("gradient_checkpointing", False, "gradient_checkpointing is off", SCHEMA),
    FilledRow(
        "gradient_checkpointing_kwargs", {"use_reentrant": False}, "use_reentrant False", TRAINER, since="0.10.0"
    ),
    FilledRow("max_grad_norm", 1.0, "the Trainer's max_grad_norm", TRAINER),
    FilledRow("lora_dropout", 0.0, "lora_dropout 0", SCHEMA),
    FilledRow("bnb_4bit_quant_type", "nf4", "adapter: qlora", LOADER),
    FilledRow("bnb_4bit_use_double_quant", True, "adapter: qlora", LOADER),
    FilledRow("ddp_find_unused_parameters", False, "DDP does not look for unused weights", TRAINER),
    FilledRow("fsdp_version", 1, "FSDP1 where fsdp_version is not given", SCHEMA),
)


@dataclass(frozen=True, slots=True)
class Padding:
    """Tokens to whose multiple the collator pads a batch."""

    multiple: int
    source: Source


PADDING = Padding(64, Source("Axolotl, its collator", "axolotl/core/builders/causal.py, build", "0.9.2, 0.18.0"))


@dataclass(frozen=True, slots=True)
class Since:
    """The release since which Axolotl does something."""

    version: str
    source: Source


OFFLOADS = Since("0.11.0", Source("Axolotl activation_offloading", "axolotl/utils/schemas/validation.py", "0.18.0"))
KERNELS_ON = Since(
    "0.9.0", Source("Axolotl check_auto_enable_lora_kernels", "axolotl/utils/schemas/config.py", "0.9.2")
)
ANY_DROPOUT = Since("0.16.0", Source("Axolotl LoRA kernels with dropout", "axolotl-ai-cloud/axolotl #3528", "2026-03"))

# Names of optimizers that are Axolotl's own -> what the Trainer calls the same algorithm.
OWN_OPTIMIZERS = {
    "ao_adamw_4bit": "adamw_torch_4bit",
    "ao_adamw_8bit": "adamw_torch_8bit",
    "optimi_adamw": "adamw_torch",
}
OWN_OPTIMIZERS_SOURCE = Source("Axolotl's own optimizers", "axolotl/core/builders/base.py", "0.18.0")
ATTENTIONS = {
    "xformers_attention": "xformers",
    "flex_attention": "flex_attention",
    "flash_attention": "flash_attention_2",
    "sdp_attention": "sdpa",
    "eager_attention": "eager",
}
FSDP2 = 2  # fsdp_version of the variant that shards each parameter
_PINS = Source("Axolotl's requirements", "setup.py, requirements.txt, pyproject.toml", "0.6.0 to 0.19.0")
_PINNED = (  # Axolotl's release, the TRL that it installs; newest first
    ("0.19", "1.9.0"), ("0.18", "1.8.0"), ("0.17", "1.5.1"), ("0.15", "0.29.0"), ("0.14", "0.27.1"), ("0.13", "0.27.0"),
    ("0.12", "0.21.0"), ("0.11", "0.18.2"), ("0.10", "0.18.1"), ("0.9", "0.17.0"), ("0.8", "0.16.1"), ("0.7", "0.15.0"),
    ("", "0.12.1"),
)  # fmt: skip
AXOLOTL_TRL: tuple[FilledRow, ...] = tuple(
    FilledRow("stack.versions.trl", trl, f"Axolotl {since or 'before 0.7'} installs TRL {trl}", _PINS, since=since)
    for since, trl in _PINNED
)
TASKS = {"dpo": "dpo", "ipo": "dpo", "orpo": "orpo", "kto": "kto", "simpo": "simpo", "grpo": "grpo", "gdpo": "grpo"}
