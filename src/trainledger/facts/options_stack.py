"""Options of the software stack: `stack.options`, `stack.env`, `stack.allocator`."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.allocator_settings import ALLOCATOR_TEXTS, SETTINGS, Moves, Setting, Value
from trainledger.facts.option_row import Direction, Effect, Kind, Row, counted, harmless, uncounted
from trainledger.facts.peft import UPCAST
from trainledger.facts.phases import SAMPLING
from trainledger.facts.supervised import SMOOTHED, SMOOTHS
from trainledger.facts.torchtitan import COMPONENTS
from trainledger.facts.trainer import NOISE

OPTIONS, ENV, ALLOCATOR = "stack.options", "stack.env", "stack.allocator"
BOOL, COUNT, NUMBER, TEXT, TEXTS = Kind.BOOL, Kind.COUNT, Kind.NUMBER, Kind.TEXT, Kind.TEXTS
LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER

TORCH_OPTIM = Source("PyTorch Optimizer.zero_grad", "torch/optim/optimizer.py", "2.13")
HF_MODEL = Source("Transformers causal language model forward", "transformers/models/llama/modeling_llama.py", "5.24.0")
HF_LOADING = Source("Transformers from_pretrained", "transformers/modeling_utils.py", "4.40.2, 5.24.0")
HF_TRAINER = Source("Transformers TrainingArguments", "transformers/training_args.py", "5.24.0")
TRL = Source("TRL preference trainers", "docs: DPOTrainer, KTOTrainer", "2026-07")
MEGATRON = Source("Megatron-LM arguments", "megatron/training/arguments.py", "2026-08")
MEGATRON_CONFIG = Source(
    "Megatron-Core TransformerConfig", "megatron/core/transformer/transformer_config.py", "2026-08"
)
VERL = Source("verl actor configuration", "verl/trainer/config/actor/actor.yaml", "0.7.0")
TITAN = Source("torchtitan model settings", "torchtitan/models/norms.py", "2024-2025")
CUBLAS = Source("cuBLAS library, cublasSetWorkspace and CUBLAS_WORKSPACE_CONFIG", "NVIDIA cuBLAS manual, section 2.1.4")
TORCH_SDPA = Source("PyTorch attention kernel choice", "aten/src/ATen/native/transformers/cuda/sdp_utils.cpp", "2.13")
TE = Source("Transformer Engine environment variables", "NVIDIA Transformer Engine user guide, attention", "2.11")
TORCH_ALLOC = Source("PyTorch CUDA semantics, memory management", "docs: notes/cuda, PYTORCH_CUDA_ALLOC_CONF", "2.13")
NCCL = Source("NCCL environment variables", "NVIDIA NCCL user guide, environment variables", "2.27")
CUDA_ENV = Source("CUDA environment variables", "CUDA C++ programming guide, environment variables", "13.0")

KINDS = {Value.BOOL: BOOL, Value.COUNT: COUNT, Value.POWER: COUNT, Value.BACKEND: TEXT, Value.DIVISIONS: Kind.ANY}
EFFECTS = {
    Moves.DEVICE: Effect.COUNTED,
    Moves.PINNED: Effect.COUNTED,
    Moves.HOST: Effect.NOT_COUNTED,
    Moves.NOTHING: Effect.NONE,
}


def _allocator(setting: Setting) -> Row:
    """A setting of the caching allocator as an option: what moves device memory, the replay counts."""
    effect = EFFECTS[setting.moves]
    way = EITHER if effect is Effect.NOT_COUNTED else Direction.NONE
    return Row(setting.name, ALLOCATOR, KINDS.get(setting.value, NUMBER), effect, way, setting.source)


STACK_ROWS: tuple[Row, ...] = (
    *counted(OPTIONS, TORCH_OPTIM, (("zero_grad_set_to_none", BOOL),)),
    *counted(OPTIONS, HF_MODEL, (("batch_tensors", TEXTS), ("keep_outputs", BOOL))),
    *counted(OPTIONS, UPCAST.source, ((UPCAST.option, BOOL),)),
    *counted(OPTIONS, VERL, (("entropy_coeff", NUMBER),)),
    *counted(OPTIONS, HF_LOADING, (("low_cpu_mem_usage", BOOL), ("device_map", TEXT))),
    *counted(OPTIONS, HF_TRAINER, (("dataloader_num_workers", COUNT), ("dataloader_prefetch_factor", COUNT))),
    *uncounted(
        OPTIONS,
        HF_TRAINER,
        (
            ("torch_empty_cache_steps", COUNT, HIGH),
            ("use_cache", BOOL, LOW),
            ("gradient_checkpointing_every_n_layers", COUNT, EITHER),
        ),
    ),
    *counted(OPTIONS, TRL, (("precompute_ref_log_probs", BOOL), ("ref_model", TEXT), ("disable_dropout", BOOL))),
    *counted(OPTIONS, NOISE.source, ((NOISE.option, NUMBER),)),
    *counted(OPTIONS, SMOOTHED.source, ((SMOOTHS, NUMBER),)),
    *counted(OPTIONS, SAMPLING.source, ((SAMPLING.option, COUNT),)),
    *counted(OPTIONS, TRL, (("loss_type", TEXTS), ("use_weighting", BOOL), ("precompute_ref_batch_size", COUNT))),
    *counted(OPTIONS, TRL, (("rpo_alpha", NUMBER), ("cpo_alpha", NUMBER))),
    *uncounted(
        OPTIONS,
        TRL,
        (
            ("padding_free", BOOL, EITHER),
            ("packing", BOOL, EITHER),
            ("sync_ref_model", BOOL, LOW),
            ("use_logits_to_keep", BOOL, HIGH),
            ("activation_offloading", BOOL, HIGH),
        ),
    ),
    *counted(
        OPTIONS,
        MEGATRON,
        (
            ("create_attention_mask_in_dataloader", BOOL),
            ("apply_query_key_layer_scaling", BOOL),
            ("apply_rope_fusion", BOOL),
            ("attention_softmax_in_fp32", BOOL),
            ("bias_activation_fusion", BOOL),
            ("bias_dropout_fusion", BOOL),
            ("bias_swiglu_fusion", BOOL),
            ("deterministic_mode", BOOL),
            ("distribute_saved_activations", BOOL),
            ("jit_fuser", BOOL),
            ("cuda_graph_impl", TEXT),
            ("cuda_graph_modules", TEXTS),
            ("cuda_graph_scope", Kind.ANY),
            ("masked_softmax_fusion", BOOL),
            ("make_vocab_size_divisible_by", COUNT),
            ("no_bias_gelu_fusion", BOOL),
            ("no_bias_swiglu_fusion", BOOL),
            ("no_bias_dropout_fusion", BOOL),
            ("no_masked_softmax_fusion", BOOL),
            ("no_rope_fusion", BOOL),
            ("transformer_impl", TEXT),
        ),
    ),
    *uncounted(
        OPTIONS,
        MEGATRON,
        (
            ("calculate_per_token_loss", BOOL, EITHER),
            ("check_weight_hash_across_dp_replicas_interval", COUNT, LOW),
            ("cross_entropy_loss_fusion", BOOL, HIGH),
            ("cross_entropy_fusion_impl", TEXT, EITHER),
            ("cuda_graph_warmup_steps", COUNT, EITHER),
            ("empty_unused_memory_level", COUNT, HIGH),
            ("external_cuda_graph", BOOL, LOW),
            ("local_multi_tensor_scale", BOOL, LOW),
            ("log_num_zeros_in_grad", BOOL, LOW),
            ("log_params_norm", BOOL, LOW),
            ("manual_gc", BOOL, EITHER),
            ("no_persist_layer_norm", BOOL, LOW),
            ("persist_layer_norm", BOOL, EITHER),
            ("use_te_rng_tracker", BOOL, EITHER),
            ("use_mcore_models", BOOL, EITHER),
        ),
    ),
    *counted(
        OPTIONS,
        MEGATRON_CONFIG,
        (
            ("moe_router_force_load_balancing", BOOL),
            ("fine_grained_activation_offloading", BOOL),
            ("offload_modules", TEXTS),
            ("cpu_offloading", BOOL),
            ("cpu_offloading_num_layers", COUNT),
            ("min_offloaded_tensor_size", COUNT),
            ("first_last_layers_bf16", BOOL),
            ("num_layers_at_start_in_bf16", COUNT),
            ("num_layers_at_end_in_bf16", COUNT),
            ("fp8_amax_history_len", COUNT),
        ),
    ),
    *uncounted(
        OPTIONS,
        MEGATRON_CONFIG,
        (
            ("delay_offload_until_cuda_graph", BOOL, EITHER),
            ("activation_offload_fraction", Kind.NUMBER, LOW),
            ("activation_func_fp8_input_store", BOOL, HIGH),
            ("memory_efficient_layer_norm", BOOL, HIGH),
        ),
    ),
    *counted(OPTIONS, COMPONENTS.source, ((f"{COMPONENTS.section}.{COMPONENTS.key}", TEXTS),)),
    *uncounted(OPTIONS, TITAN, (("norm", TEXT, EITHER),)),
    *counted(ENV, TE, (("NVTE_ALLOW_NONDETERMINISTIC_ALGO", TEXT),)),
    *counted(ENV, CUBLAS, (("CUBLAS_WORKSPACE_CONFIG", TEXT),)),
    *counted(ENV, TORCH_ALLOC, tuple((name, TEXT) for name in ALLOCATOR_TEXTS)),
    *counted(ENV, TORCH_SDPA, (("TORCH_CUDNN_SDPA_DEPRIORITIZED", TEXT),)),
    *uncounted(
        ENV,
        CUBLAS,
        (
            ("CUBLASLT_WORKSPACE_SIZE", TEXT, EITHER),
            ("TORCH_CUBLASLT_UNIFIED_WORKSPACE", TEXT, EITHER),
        ),
    ),
    *uncounted(
        ENV,
        TE,
        (
            ("NVTE_CPU_OFFLOAD_V1", TEXT, EITHER),
            ("NVTE_FUSED_ATTN", TEXT, EITHER),
            ("NVTE_FLASH_ATTN", TEXT, EITHER),
            ("NVTE_UNFUSED_ATTN", TEXT, EITHER),
            ("NVTE_FUSED_ATTN_BACKEND", TEXT, EITHER),
            ("NVTE_FUSED_ATTN_FORCE_WORKSPACE_OPT", TEXT, EITHER),
            ("NVTE_FP8_DPA_BWD", TEXT, EITHER),
            ("NVTE_BIAS_GELU_NVFUSION", TEXT, EITHER),
            ("NVTE_TORCH_COMPILE", TEXT, EITHER),
            ("NVTE_BATCH_MHA_P2P_COMM", TEXT, EITHER),
            ("NVTE_NORM_FWD_USE_CUDNN", TEXT, EITHER),
            ("NVTE_NORM_BWD_USE_CUDNN", TEXT, EITHER),
            ("NVTE_FWD_LAYERNORM_SM_MARGIN", TEXT, EITHER),
            ("NVTE_BWD_LAYERNORM_SM_MARGIN", TEXT, EITHER),
        ),
    ),
    *uncounted(
        ENV,
        NCCL,
        (
            ("NCCL_ALGO", TEXT, EITHER),
            ("NCCL_BUFFSIZE", TEXT, EITHER),
            ("NCCL_NVLS_ENABLE", TEXT, EITHER),
            ("NCCL_CUMEM_ENABLE", TEXT, EITHER),
            ("NCCL_MAX_NCHANNELS", TEXT, EITHER),
            ("TORCH_NCCL_AVOID_RECORD_STREAMS", TEXT, EITHER),
        ),
    ),
    *uncounted(
        ENV,
        CUDA_ENV,
        (
            ("CUDA_DEVICE_MAX_CONNECTIONS", TEXT, EITHER),
            ("CUDA_MODULE_LOADING", TEXT, LOW),
            ("CUDA_LAUNCH_BLOCKING", TEXT, EITHER),
        ),
    ),
    *uncounted(
        ENV,
        TORCH_ALLOC,
        (("PYTORCH_NO_CUDA_MEMORY_CACHING", TEXT, EITHER),),
    ),
    *harmless(ENV, CUDA_ENV, (("CUDA_VISIBLE_DEVICES", TEXT), ("CUDA_DEVICE_ORDER", TEXT))),
    *(_allocator(setting) for setting in SETTINGS.values()),
)
