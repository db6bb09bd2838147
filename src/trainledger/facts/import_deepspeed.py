"""Keys of a DeepSpeed configuration, what each means for memory, and which of them `auto` stands for."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow, KeyRow, nothing, read, straight, uncounted
from trainledger.facts.option_row import Direction

CONFIG = Source(
    "DeepSpeed configuration", "deepspeed/runtime/config.py, runtime/precision_config.py", "0.9.5 to 0.19.8"
)
ZERO = Source("DeepSpeed, zero_optimization", "deepspeed/runtime/zero/config.py, offload_config.py", "0.9.5 to 0.19.8")
HF = Source(
    "Transformers and accelerate, DeepSpeed's auto values",
    "transformers/integrations/deepspeed.py; accelerate/utils/dataclasses.py, DeepSpeedPlugin",
    "5.24.0, 1.15.0",
)
LOW, HIGH, EITHER = Direction.LOW, Direction.HIGH, Direction.EITHER
Z = "zero_optimization"
_OPTIONS = (
    "allgather_partitions allgather_bucket_size reduce_scatter contiguous_gradients round_robin_gradients overlap_comm "
    "reduce_bucket_size sub_group_size stage3_max_live_parameters stage3_max_reuse_distance "
    "stage3_prefetch_bucket_size stage3_param_persistence_threshold stage3_gather_16bit_weights_on_model_save "
    "zero_hpz_partition_size zero_quantized_weights zero_quantized_gradients zero_quantized_nontrainable_weights "
    "mics_shard_size memory_efficient_linear load_from_fp32_weights offload_optimizer.device "
    "offload_optimizer.pin_memory offload_optimizer.buffer_count offload_optimizer.nvme_path offload_optimizer.ratio "
    "offload_optimizer.fast_init offload_param.device offload_param.pin_memory offload_param.buffer_count "
    "offload_param.buffer_size offload_param.max_in_cpu offload_param.nvme_path"
).split()
# Old spellings, by the option that each means.
_OLD = (
    ("prefetch_bucket_size", "stage3_prefetch_bucket_size"),
    ("param_persistence_threshold", "stage3_param_persistence_threshold"),
    ("max_live_parameters", "stage3_max_live_parameters"),
    ("max_reuse_distance", "stage3_max_reuse_distance"),
    ("stage3_gather_fp16_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save"),
    ("gather_16bit_weights_on_model_save", "stage3_gather_16bit_weights_on_model_save"),
)
DEEPSPEED_KEYS: tuple[KeyRow, ...] = (
    *straight(ZERO, ((f"{Z}.{name}", f"parallel.options.{name}") for name in _OPTIONS)),
    *straight(ZERO, ((f"{Z}.{old}", f"parallel.options.{name}") for old, name in _OLD)),
    *straight(
        CONFIG,
        (
            ("communication_data_type", "parallel.options.communication_data_type"),
            ("data_types.grad_accum_dtype", "parallel.options.data_types.grad_accum_dtype"),
        ),
    ),
    *read(ZERO, (f"{Z}.stage", f"{Z}.cpu_offload", f"{Z}.cpu_offload_params", f"{Z}.cpu_offload_use_pin_memory")),
    *read(
        CONFIG,
        (
            "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps gradient_clipping "
            "bf16.enabled bfloat16.enabled fp16.enabled optimizer.type optimizer.params.torch_adam "
            "optimizer.params.adam_w_mode optimizer.params.momentum amp.enabled zero_allow_untested_optimizer "
            "torch_autocast.enabled"
        ).split(),
    ),
    *nothing(
        CONFIG,
        (
            "fp16.loss_scale fp16.initial_scale_power fp16.loss_scale_window fp16.hysteresis fp16.min_loss_scale "
            "fp16.consecutive_hysteresis fp16.fp16_opt_level fp16.opt_level bf16.check_grad_overflow amp.opt_level "
            "amp.loss_scale "
            "optimizer.params.* scheduler scheduler.* steps_per_print wall_clock_breakdown dump_state memory_breakdown "
            "prescale_gradients gradient_predivide_factor sparse_gradients zero_force_ds_cpu_optimizer tensorboard "
            "tensorboard.* wandb wandb.* csv_monitor csv_monitor.* comet comet.* monitor_config monitor_config.* "
            "flops_profiler flops_profiler.* comms_logger comms_logger.* aio aio.* checkpoint checkpoint.* elasticity "
            "elasticity.* autotuning autotuning.* nebula nebula.* data_efficiency data_efficiency.* "
            "curriculum_learning curriculum_learning.* disable_allgather dataloader_drop_last seed timers timers.* "
            "communication_data_parallel use_data_before_expert_parallel_ zero_use_node_local_storage comment"
        ).split(),
    ),
    # DeepSpeed's own checkpoint function: models of Transformers never call it.
    *nothing(CONFIG, ("activation_checkpointing", "activation_checkpointing.*")),
    *nothing(
        ZERO,
        (
            f"{Z}.{name}"
            for name in (
                "ignore_unused_parameters elastic_checkpoint legacy_stage1 override_module_apply "
                "log_trace_cache_warnings enable_sanity_checks offload_optimizer.pipeline "
                "offload_optimizer.pipeline_read offload_optimizer.pipeline_write mics_hierarchical_params_gather "
                "use_all_reduce_for_fetch_params stage3_use_all_reduce_for_fetch_params"
            ).split()
        ),
    ),
    *uncounted(
        ZERO,
        (
            (f"{Z}.model_persistence_threshold", LOW),
            (f"{Z}.stage3_model_persistence_threshold", LOW),
            (f"{Z}.stage3_module_granularity_threshold", EITHER),
            (f"{Z}.module_granularity_threshold", EITHER),
            (f"{Z}.leaf_module", EITHER),
            (f"{Z}.leaf_module.*", EITHER),
            (f"{Z}.use_multi_rank_bucket_allreduce", EITHER),
            (f"{Z}.zeropp_loco_param", LOW),
            (f"{Z}.zenflow", EITHER),
            (f"{Z}.zenflow.*", EITHER),
            (f"{Z}.offload_optimizer.super_offload", EITHER),
            (f"{Z}.offload_optimizer.cpuadam_cores_perc", EITHER),
        ),
    ),
    *uncounted(
        CONFIG,
        (
            ("bf16.immediate_grad_update", EITHER),
            ("bf16.bf16_master_weights_and_grads", HIGH),
            ("bf16.bf16_optimizer_states", HIGH),
            ("fp16.auto_cast", EITHER),
            ("fp16.fp16_master_weights_and_grads", HIGH),
            ("torch_autocast.dtype", EITHER),
            ("torch_autocast.lower_precision_safe_modules", EITHER),
            ("sparse_attention", EITHER),
            ("sparse_attention.*", EITHER),
            ("compression_training", EITHER),
            ("compression_training.*", EITHER),
            ("pipeline", EITHER),
            ("pipeline.*", EITHER),
            ("tensor_parallel", HIGH),
            ("tensor_parallel.*", HIGH),
            ("sequence_parallel_size", HIGH),
            ("hybrid_engine", LOW),
            ("hybrid_engine.*", LOW),
            ("compile", EITHER),
            ("compile.*", EITHER),
            ("expert_parallel", EITHER),
            ("expert_parallel.*", EITHER),
        ),
    ),
)
# Keys whose `auto` the Trainer or accelerate fills in: from the run's arguments, or from the model's hidden size.
FILLED_IN = frozenset(
    (
        "train_batch_size train_micro_batch_size_per_gpu gradient_accumulation_steps gradient_clipping fp16.enabled "
        "bf16.enabled optimizer.params.lr optimizer.params.betas optimizer.params.eps optimizer.params.weight_decay "
        "scheduler.params.warmup_min_lr scheduler.params.warmup_max_lr scheduler.params.warmup_num_steps "
        "scheduler.params.total_num_steps "
        f"{Z}.offload_optimizer.device {Z}.offload_optimizer.nvme_path {Z}.offload_param.device "
        f"{Z}.offload_param.nvme_path {Z}.stage3_gather_16bit_weights_on_model_save"
    ).split()
)
BY_HIDDEN_SIZE = {
    f"{Z}.reduce_bucket_size": "the hidden size squared",
    f"{Z}.stage3_prefetch_bucket_size": "nine tenths of the hidden size squared",
    f"{Z}.stage3_param_persistence_threshold": "ten times the hidden size",
}
PLUGIN = (
    FilledRow("stage", 2, "ACCELERATE_DEEPSPEED_ZERO_STAGE 2", HF),
    FilledRow("optimizer.grad_clip", 1.0, "gradient_clipping 1.0 fills auto", HF),
)
NO_CLIP = FilledRow("optimizer.grad_clip", None, "gradient_clipping 0: DeepSpeed clips nothing", CONFIG)
