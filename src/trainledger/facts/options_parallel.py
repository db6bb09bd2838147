"""Options of the parallel strategies (`parallel.options`), under the names their frameworks give them."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.option_row import Direction, Kind, Row, counted, harmless, uncounted

WHERE = "parallel.options"
BOOL, COUNT, NUMBER, TEXT = Kind.BOOL, Kind.COUNT, Kind.NUMBER, Kind.TEXT
LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER

DDP = Source("PyTorch DistributedDataParallel", "torch/nn/parallel/distributed.py, class docstring", "2.13")
FSDP1 = Source("PyTorch FullyShardedDataParallel", "torch/distributed/fsdp/fully_sharded_data_parallel.py", "2.13")
ACCELERATE = Source("accelerate FullyShardedDataParallelPlugin", "accelerate/utils/dataclasses.py", "2026-07")
DEEPSPEED = Source("DeepSpeed configuration, zero_optimization", "deepspeed/runtime/zero/config.py", "0.19.6")
DEEPSPEED_TYPES = Source("DeepSpeed configuration, data_types", "deepspeed/runtime/config.py", "0.19.6")
DEEPSPEED_GATHER = Source(
    "DeepSpeed, weights gathered in place in the flat buffer",
    "deepspeed/runtime/utils.py, all_gather_dp_groups",
    "0.19.8",
)
DEEPSPEED_INIT = Source(
    "DeepSpeed ZeRO-3, models built under zero.Init (the default here) or whole",
    "deepspeed/runtime/engine.py, _configure_distributed_model; runtime/zero/parameter_offload.py, "
    "_convert_to_zero_parameters",
    "0.9.5 to 0.19.8",
)
DEEPSPEED_QGZ = Source(
    "DeepSpeed ZeRO++: gradients reduced in 4 bits between nodes, whose devices a plan does not count; frozen weights "
    "in 8 bits",
    "deepspeed/runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce; runtime/zero/partition_parameters.py",
    "0.10.0 to 0.19.8",
)
MEGATRON = Source("Megatron-LM arguments", "megatron/training/arguments.py", "2026-08")
MEGATRON_PP = Source("Megatron-Core ModelParallelConfig", "megatron/core/model_parallel_config.py", "2026-08")
MEGATRON_MOE = Source(
    "Megatron-Core TransformerConfig, MoE", "megatron/core/transformer/transformer_config.py", "2026-08"
)
TITAN = Source("torchtitan parallelism settings", "torchtitan/config/job_config.py", "2025-08")
ULYSSES = Source(
    "DeepSpeed Ulysses long-sequence training", "deepspeed/runtime/sequence_parallel/ulysses_sp.py", "0.19.6"
)
PITHTRAIN = Source("PithTrain pipeline settings", "DualPipeV schedule, delayed weight gradients", "2026")

PARALLEL_ROWS: tuple[Row, ...] = (
    *counted(
        WHERE,
        DDP,
        (
            ("gradient_as_bucket_view", BOOL),
            ("bucket_cap_mb", NUMBER),
            ("find_unused_parameters", BOOL),
        ),
    ),
    *uncounted(
        WHERE,
        DDP,
        (
            ("broadcast_buffers", BOOL, EITHER),
            ("static_graph", BOOL, EITHER),
            ("first_bucket_mb", NUMBER, EITHER),
            ("comm_hook", TEXT, EITHER),
            ("delay_all_reduce_named_params", Kind.TEXTS, EITHER),
        ),
    ),
    *counted(
        WHERE,
        FSDP1,
        (
            ("no_sync", BOOL),
            ("backward_prefetch", TEXT),
            ("forward_prefetch", BOOL),
            ("sharding_strategy", TEXT),
            ("use_orig_params", BOOL),
        ),
    ),
    *counted(WHERE, ACCELERATE, (("fsdp_version", COUNT), ("auto_wrap_policy", TEXT), ("min_num_params", COUNT))),
    *uncounted(
        WHERE,
        FSDP1,
        (
            ("limit_all_gathers", BOOL, EITHER),
            ("buffer_dtype", TEXT, EITHER),
            ("sync_module_states", BOOL, LOW),
            ("loss_parallel", BOOL, HIGH),
        ),
    ),
    *uncounted(
        WHERE,
        ACCELERATE,
        (
            ("transformer_layer_cls_to_wrap", Kind.ANY, EITHER),
            ("state_dict_type", TEXT, LOW),
            ("cpu_ram_efficient_loading", BOOL, EITHER),
            ("activation_checkpointing", BOOL, HIGH),
        ),
    ),
    *counted(
        WHERE,
        DEEPSPEED,
        (
            ("stage", COUNT),
            ("overlap_comm", BOOL),
            ("contiguous_gradients", BOOL),
            ("reduce_scatter", BOOL),
            ("reduce_bucket_size", Kind.AUTO),
            ("round_robin_gradients", BOOL),
            ("sub_group_size", COUNT),
            ("stage3_max_live_parameters", COUNT),
            ("stage3_max_reuse_distance", COUNT),
            ("stage3_param_persistence_threshold", Kind.AUTO),
            ("stage3_prefetch_bucket_size", Kind.AUTO),
            ("zero_hpz_partition_size", COUNT),
            ("zero_quantized_weights", BOOL),
            ("memory_efficient_linear", BOOL),
            ("mics_shard_size", NUMBER),
            ("offload_optimizer.device", TEXT),
            ("offload_optimizer.pin_memory", BOOL),
            ("offload_optimizer.buffer_count", COUNT),
            ("offload_optimizer.nvme_path", TEXT),
            ("offload_optimizer.ratio", NUMBER),
            ("offload_param.device", TEXT),
            ("offload_param.pin_memory", BOOL),
            ("offload_param.buffer_count", COUNT),
            ("offload_param.buffer_size", COUNT),
            ("offload_param.max_in_cpu", COUNT),
            ("offload_param.nvme_path", TEXT),
        ),
    ),
    *counted(WHERE, DEEPSPEED_INIT, (("zero_init", BOOL),)),
    *harmless(WHERE, DEEPSPEED_GATHER, (("allgather_partitions", BOOL), ("allgather_bucket_size", COUNT))),
    *uncounted(
        WHERE,
        DEEPSPEED,
        (
            ("stage3_gather_16bit_weights_on_model_save", BOOL, LOW),
            ("load_from_fp32_weights", BOOL, EITHER),
            ("offload_optimizer.fast_init", BOOL, EITHER),
        ),
    ),
    *uncounted(
        WHERE,
        DEEPSPEED_QGZ,
        (("zero_quantized_gradients", BOOL, EITHER), ("zero_quantized_nontrainable_weights", BOOL, HIGH)),
    ),
    *counted(WHERE, DEEPSPEED_TYPES, (("data_types.grad_accum_dtype", TEXT), ("communication_data_type", TEXT))),
    *counted(WHERE, ULYSSES, (("tiled_mlp", BOOL),)),
    *uncounted(WHERE, ULYSSES, (("tiled_logits", BOOL, HIGH),)),
    *counted(
        WHERE,
        MEGATRON,
        (
            ("ddp_bucket_size", COUNT),
            ("ddp_num_buckets", COUNT),
            ("ddp_pad_buckets_for_high_nccl_busbw", BOOL),
            ("pipeline_model_parallel_layout", TEXT),
            ("account_for_embedding_in_pipeline_split", BOOL),
            ("account_for_loss_in_pipeline_split", BOOL),
            ("num_distributed_optimizer_instances", COUNT),
            ("overlap_grad_reduce", BOOL),
            ("use_tp_pp_dp_mapping", BOOL),
            ("use_precision_aware_optimizer", BOOL),
            ("store_param_remainders", BOOL),
            ("optimizer_offload_fraction", NUMBER),
            ("pin_cpu_grads", BOOL),
            ("use_layer_wise_param_layout", BOOL),
            ("decoder_first_pipeline_num_layers", COUNT),
            ("decoder_last_pipeline_num_layers", COUNT),
            ("gradient_accumulation_fusion", BOOL),
            ("data_parallel_sharding_strategy", TEXT),
            ("outer_dp_sharding_strategy", TEXT),
            ("megatron_fsdp_main_params_dtype", TEXT),
            ("suggested_communication_unit_size", COUNT),
            ("fsdp_double_buffer", BOOL),
        ),
    ),
    *counted(
        WHERE,
        MEGATRON_PP,
        (
            ("defer_embedding_wgrad_compute", BOOL),
            ("microbatch_group_size_per_virtual_pipeline_stage", COUNT),
            ("wgrad_deferral_limit", COUNT),
            ("delay_wgrad_compute", BOOL),
            ("cp_comm_type", TEXT),
            ("hierarchical_context_parallel_sizes", Kind.COUNTS),
        ),
    ),
    *uncounted(
        WHERE,
        MEGATRON,
        (
            ("ddp_average_in_collective", BOOL, EITHER),
            ("ddp_param_name_patterns_for_fp32_local_accumulation", Kind.TEXTS, LOW),
            ("megatron_fsdp_grad_comm_dtype", TEXT, EITHER),
            ("megatron_fsdp_main_grads_dtype", TEXT, EITHER),
            ("overlap_param_gather", BOOL, LOW),
            ("overlap_param_gather_with_optimizer_step", BOOL, LOW),
            ("align_grad_reduce", BOOL, EITHER),
            ("align_param_gather", BOOL, EITHER),
            ("keep_fp8_weight_transpose_cache", BOOL, LOW),
            ("nccl_ub", BOOL, LOW),
        ),
    ),
    *uncounted(
        WHERE,
        MEGATRON_PP,
        (
            ("batch_p2p_comm", BOOL, EITHER),
            ("overlap_p2p_comm", BOOL, LOW),
            ("overlap_p2p_communication_warmup_flush", BOOL, LOW),
            ("deallocate_pipeline_outputs", BOOL, LOW),
            ("tp_comm_overlap", BOOL, LOW),
        ),
    ),
    *counted(
        WHERE,
        MEGATRON_MOE,
        (
            ("moe_expert_capacity_factor", NUMBER),
            ("moe_flex_dispatcher_backend", TEXT),
            ("moe_enable_deepep", BOOL),
            ("moe_grouped_gemm", BOOL),
            ("moe_pad_expert_input_to_capacity", BOOL),
            ("moe_permute_fusion", BOOL),
            ("moe_router_dtype", TEXT),
            ("moe_router_padding_for_fp8", BOOL),
            ("moe_router_padding_for_quantization", BOOL),
            ("overlap_moe_expert_parallel_comm", BOOL),
            ("moe_router_load_balancing_type", TEXT),
            ("moe_shared_expert_overlap", BOOL),
            ("moe_token_dispatcher_type", TEXT),
        ),
    ),
    *uncounted(
        WHERE,
        MEGATRON_MOE,
        (
            ("moe_token_drop_policy", TEXT, EITHER),
            ("moe_router_enable_expert_bias", BOOL, LOW),
            ("moe_router_fusion", BOOL, HIGH),
            ("moe_router_group_topk", COUNT, LOW),
            ("moe_router_num_groups", COUNT, LOW),
            ("moe_router_pre_softmax", BOOL, LOW),
            ("moe_router_score_function", TEXT, LOW),
            ("moe_layer_recompute", BOOL, HIGH),
            ("moe_use_legacy_grouped_gemm", BOOL, EITHER),
        ),
    ),
    *counted(
        WHERE,
        TITAN,
        (
            ("reshard_last_layer", BOOL),
            ("async_tp", BOOL),
            ("pipeline_parallel_first_stage_less_layers", COUNT),
            ("pipeline_parallel_last_stage_less_layers", COUNT),
            ("pipeline_parallel_split_points", Kind.TEXTS),
            ("module_fqns_per_model_part", Kind.ANY),
        ),
    ),
    *uncounted(
        WHERE,
        TITAN,
        (
            ("enable_fsdp_symm_mem", BOOL, LOW),
            ("enable_compiled_autograd", BOOL, EITHER),
            ("context_parallel_rotate_method", TEXT, EITHER),
            ("pipeline_parallel_microbatch_size", COUNT, EITHER),
            ("expert_parallel_comm_backend", TEXT, EITHER),
        ),
    ),
)
