"""Keys of Megatron-Bridge's configuration (`ConfigContainer`) and of NeMo 2's: the Megatron arguments they mean."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.import_megatron import ROWS as MEGATRON
from trainledger.facts.import_rows import FilledRow, KeyRow, Means, nothing, read, uncounted
from trainledger.facts.option_row import Direction

BRIDGE = Source(
    "Megatron-Bridge ConfigContainer and its parts",
    "src/megatron/bridge/training/config.py, mixed_precision.py; models/gpt_provider.py", "067f987, 2026-08",
)  # fmt: skip
NEMO = Source(
    "NeMo 2 recipes: where their keys stand", "nemo/collections/llm/recipes/*.py; lightning/pytorch/strategies", "2.3"
)
CORE = Source(
    "Megatron-Core settings", "megatron/core/transformer/transformer_config.py, model_parallel_config.py; distributed; "
    "optimizer/optimizer_config.py", "2026-08",
)  # fmt: skip

# NeMo 2's paths, as the same settings stand in Megatron-Bridge's; the first that fits is taken.
MOVED: tuple[tuple[str, str], ...] = (
    ("model.config.", "model."),
    ("trainer.strategy.ddp.", "ddp."),
    ("trainer.strategy.", "model."),
    ("trainer.plugins.precision", "mixed_precision"),
    ("trainer.plugins.", "mixed_precision."),
    ("optim.config.", "optimizer."),
    ("data.seq_length", "dataset.seq_length"),
    ("data.micro_batch_size", "train.micro_batch_size"),
    ("data.global_batch_size", "train.global_batch_size"),
)
DEVICES, NODES = "trainer.devices", "trainer.num_nodes"
# keys whose argument has another name
RENAMED: dict[str, str] = {
    "model.num_moe_experts": "--num-experts",
    "model.virtual_pipeline_model_parallel_size": "--num-virtual-stages-per-pipeline-rank",
    "model.num_layers_in_first_pipeline_stage": "--decoder-first-pipeline-num-layers",
    "model.num_layers_in_last_pipeline_stage": "--decoder-last-pipeline-num-layers",
    "model.microbatch_group_size_per_vp_stage": "--microbatch-group-size-per-virtual-pipeline-stage",
    "model.overlap_p2p_comm_warmup_flush": "--overlap-p2p-communication-warmup-flush",
    "model.fp8": "--fp8-format",
    "model.fp4": "--fp4-format",
    "model.fp8_param": "--fp8-param-gather",
    "model.use_te_rng_tracker": "--te-rng-tracker",
    "ddp.bucket_size": "--ddp-bucket-size",
    "ddp.num_buckets": "--ddp-num-buckets",
    "ddp.average_in_collective": "--ddp-average-in-collective",
    "ddp.pad_buckets_for_high_nccl_busbw": "--ddp-pad-buckets-for-high-nccl-busbw",
    "ddp.param_name_patterns_for_fp32_local_accumulation": "--ddp-param-name-patterns-for-fp32-local-accumulation",
    "ddp.nccl_ub": "--use-nccl-ub",
    "ddp.use_custom_fsdp": "--use-megatron-fsdp",
    "mixed_precision.fp8": "--fp8-format",
    "mixed_precision.fp4": "--fp4-format",
    "mixed_precision.fp8_param": "--fp8-param-gather",
    "dataset.seq_length": "--seq-length",
    "dataset.sequence_length": "--seq-length",
    "checkpoint.save": "--save",
    "checkpoint.ckpt_format": "--ckpt-format",
    "checkpoint.async_save": "--async-save",
    "checkpoint.dist_ckpt_optim_fully_reshardable": "--dist-ckpt-optim-fully-reshardable",
}
# keys that are true where their argument is left out
NEGATED: dict[str, str] = {
    "model.add_bias_linear": "--disable-bias-linear",
    "model.share_embeddings_and_output_weights": "--untie-embeddings-and-output-weights",
    "model.gradient_accumulation_fusion": "--no-gradient-accumulation-fusion",
    "model.masked_softmax_fusion": "--no-masked-softmax-fusion",
    "model.bias_dropout_fusion": "--no-bias-dropout-fusion",
    "model.apply_rope_fusion": "--no-rope-fusion",
    "model.persist_layer_norm": "--no-persist-layer-norm",
    "ddp.align_param_gather": "--no-align-param-gather",
    "checkpoint.save_optim": "--no-save-optim",
}
KEPT = "checkpoint.most_recent_k"  # Megatron-Bridge removes what is older (training/checkpointing.py, 2026-08)
SECTIONS = ("model", "ddp", "dist", "optimizer", "train", "mixed_precision", "tokenizer")
# keys of sections that the importer's own code reads
READ = (
    "model.activation_func model.gated_linear_unit model.should_pad_vocab model.bias_activation_fusion "
    "model.params_dtype model.hf_model_id model.cpu_offloading model._target_ ddp.grad_reduce_in_fp32 "
    "mixed_precision mixed_precision.grad_reduce_in_fp32 mixed_precision.params_dtype mixed_precision.fp32 peft "
    "peft._target_ peft.dim peft.target_modules peft.dropout peft.alpha env_vars.* trainer.devices "
    "trainer.num_nodes optimizer.params_dtype optimizer.bf16 optimizer.fp16 optimizer.use_distributed_optimizer "
    "checkpoint.most_recent_k "
)
UNCOUNTED = (
    "model.cpu_offloading_activations model.cpu_offloading_weights model.cpu_offloading_double_buffering "
    "model.activation_func_fp8_input_store model.memory_efficient_layer_norm model.fp8_dot_product_attention "
    "model.fp8_multi_head_attention model.quant_recipe model.moe_router_topk_limited_devices "
    "model.moe_token_dropping model.num_microbatches_with_partial_activation_checkpoints "
    "model.cuda_graph_retain_backward_graph model.disable_parameter_transpose_cache model.fused_single_qkv_rope "
    "model.teacher model.kd_config model.dense_grouped_gemm model.use_transformer_engine_full_layer_spec "
    "mixed_precision.fp8_dot_product_attention mixed_precision.fp8_multi_head_attention "
    "ddp.fsdp_all_gather_in_start_param_sync optimizer.store_param_remainders comm_overlap comm_overlap.* "
    "dataset.packed_sequence_specs dataset.dataset_kwargs peft.exclude_modules peft.dropout_position "
)
SILENT = (
    "model.perform_initialization model.timers model.finalize_model_grads_func model.grad_scale_func "
    "model.moe_grad_scale_func model.mtp_grad_scale_func model.no_sync_func model.grad_sync_func "
    "model.param_sync_func model.enable_autocast model.autocast_dtype model.pipeline_dtype "
    "model.variable_seq_lengths model.batch_p2p_comm model.batch_p2p_sync model.deallocate_pipeline_outputs "
    "model.overlap_p2p_comm model.barrier_with_L1_time model._cpu_offloading_context model.softmax_scale "
    "model.layernorm_epsilon model.layernorm_zero_centered_gamma model.init_method* "
    "model.output_layer_init_method* model.embedding_init_method* model.tp_comm_* model.fp8_wgrad "
    "model.tp_only_amax_red model.cuda_graph_use_single_mempool model.clone_scatter_output_in_embedding "
    "model.inference_* model.use_inference_optimized_layers model.use_mamba_mem_eff_path model.generation_config* "
    "model.original_max_position_embeddings model.beta_fast model.beta_slow model.rope_scaling* model.seq_len_* "
    "model.yarn_* model.scatter_embedding_sequence_parallel model.parallel_output model.transformer_layer_spec* "
    "model.hf_* model._* model.restore_modelopt_state model.use_arbitrary_attention_mask model.mtp_enabled "
    "model.rotary_* model.use_kitchen model.moe_router_bias_update_rate model.config model.tokenizer* "
    "model.optim* model.ckpt_* model.save_* model.setup_optimizers model.pipeline_model_parallel_comm_backend "
    "model.gtp_weight_remat_size model.expert_gtp_weight_remat_size model.hetereogenous_dist_checkpoint "
    "model.heterogeneous_block_specs model.dsa_* model.experimental_attention_variant_loss_scale_func "
    "ddp.check_for_nan_in_grad ddp.gradient_reduce_div_fusion ddp.megatron_fsdp_* ddp._target_ optimizer._target_ "
    "optimizer.lr optimizer.min_lr optimizer.decoupled_* optimizer.barrier_with_L1_time optimizer.timers "
    "optimizer.grad_norm_skip_threshold optimizer.soap_* optimizer.adaptive_muon_* optimizer.muon_* "
    "optimizer.use_layer_wise_distributed_optimizer optimizer.config_logger_dir "
    "mixed_precision._* mixed_precision.autocast_* mixed_precision.pipeline_dtype mixed_precision.fp8_margin "
    "mixed_precision.fp8_amax_* mixed_precision.fp8_wgrad mixed_precision.fp4_recipe mixed_precision.fp4_param* "
    "mixed_precision.loss_scale* mixed_precision.initial_loss_scale mixed_precision.min_loss_scale "
    "mixed_precision.hysteresis mixed_precision.precision mixed_precision.growth_interval train.train_* "
    "train.exit_* train.eval_* train.num_epochs train._* train.check_* train.skip_* train.iterations_to_skip "
    "train.rampup_batch_size train.decrease_batch_size_if_needed train.manual_gc_* train.step_* train.gpu_* "
    "tokenizer.* dist.* logger.* log.* checkpoint.* resume.* scheduler.* lr_scheduler.* rng.* validation.* "
    "profiling.* rerun_state_machine.* straggler.* nvrx_straggler.* ft.* tensor_inspect.* inprocess_restart.* "
    "dataset.* data.* optimizer_config_override_provider.* optim.* trainer.* peft.lora_* peft._* peft.a2a_* "
    "_target_ _partial_ name "
)
RECIPES: dict[str, dict[str, str | bool | int]] = {
    "bf16_mixed": {"bf16": True},
    "fp16_mixed": {"fp16": True, "grad_reduce_in_fp32": False},
    "fp32": {},
    "bf16_with_fp8_delayed_scaling_mixed": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "delayed", "fp8_param": True},
    "bf16_with_mxfp8_mixed": {"bf16": True, "fp8": "e4m3", "fp8_recipe": "mxfp8", "fp8_param": True},
    "bf16_with_fp8_current_scaling_mixed": {
        "bf16": True, "fp8": "hybrid", "fp8_recipe": "tensorwise", "fp8_param": True, "first_last_layers_bf16": True,
        "num_layers_at_start_in_bf16": 1, "num_layers_at_end_in_bf16": 1,
    },
    "bf16_with_fp8_subchannel_scaling_mixed": {"bf16": True, "fp8": "hybrid", "fp8_recipe": "blockwise"},
    "bf16_with_nvfp4_mixed": {"bf16": True, "fp4": "e2m1"},
}  # fmt: skip
ACTIVATIONS = ("silu", "gelu", "relu", "quick_gelu", "squared_relu")
# Transformer Engine's layers fuse the loss by themselves; gradients are reduced in fp32 beside bf16 weights.
FUSED_LOSS = FilledRow(
    "stack.loss", "vocab-parallel-fused", "cross_entropy_loss_fusion true, cross_entropy_fusion_impl native", BRIDGE
)


@dataclass(frozen=True, slots=True)
class Adapters:
    """Classes of Megatron-Bridge's adapters, as a plan names them, with the default rank."""

    kinds: tuple[tuple[str, str], ...]
    rank: int
    source: Source


ADAPTERS = Adapters(
    (("LoRA", "lora"), ("CanonicalLoRA", "lora"), ("DoRA", "dora")), 32,
    Source("Megatron-Bridge LoRA", "src/megatron/bridge/peft/lora.py, dim", "067f987, 2026-08"),
)  # fmt: skip
_MEANINGS = {row.name: row for row in MEGATRON}


def argument_of(key: str) -> str:
    """The Megatron argument that a Bridge key stands for; empty where none has its name."""
    section, _, name = key.partition(".")
    if key in RENAMED:
        return RENAMED[key]
    plain = f"--{name.replace('_', '-')}"
    return plain if section in SECTIONS and plain in _MEANINGS else ""


def row_of(key: str) -> KeyRow | None:
    """What a Bridge key means that has an argument's name: what the argument means."""
    held = _MEANINGS.get(argument_of(key)) or _MEANINGS.get(NEGATED.get(key, ""))
    return None if held is None else KeyRow(key, held.means, held.source, direction=held.direction)


ROWS: tuple[KeyRow, ...] = (
    *read(BRIDGE, READ.split()),
    *read(CORE, (*RENAMED, *NEGATED)),
    *uncounted(CORE, ((name, Direction.EITHER) for name in UNCOUNTED.split())),
    *(row for row in nothing(BRIDGE, SILENT.split())),
)
# keys of the model, for the nearest of one that is not known
NEAR = tuple(f"model.{row.name.removeprefix('--').replace('-', '_')}" for row in MEGATRON if row.means is Means.READ)
