"""How outside formats say what advice changes over ranks: sharding, offload, degrees; Megatron-Bridge's keys."""

from __future__ import annotations

from trainledger.facts.format_word_row import (
    ARGUMENTS,
    AXOLOTL,
    AXOLOTL_KEYS,
    BRIDGE,
    BRIDGE_KEYS,
    CORE,
    FULL_UNIFORM,
    MEGATRON,
    MEGATRON_KEYS,
    RECOMPUTE,
    TITAN,
    TITAN_KEYS,
    TRAINER,
    TUNERS,
    ZERO,
    ZERO_KEYS,
    Word,
    same,
)

ZERO_FILE = "a file with {zero_optimization: {stage: %s}, bf16: {enabled: true}}"
FSDP_FILE = "{fsdp_version: 2, auto_wrap_policy: TRANSFORMER_BASED_WRAP}"
MOMENTS = {"first": "bf16", "second": "bf16"}

SHARDING: tuple[Word, ...] = (
    *(
        Word(ZERO, "parallel.strategy", (("zero_optimization.stage", stage),), ZERO_KEYS, f"zero{stage}")
        for stage in "123"
    ),
    Word(ZERO, "offload.optimizer", (("zero_optimization.offload_optimizer.device", '"cpu"'),), ZERO_KEYS, "cpu"),
    Word(ZERO, "offload.params", (("zero_optimization.offload_param.device", '"cpu"'),), ZERO_KEYS, "cpu"),
    *same(
        ZERO,
        ZERO_KEYS,
        *(
            (f"parallel.options.{name}", f"zero_optimization.{name}")
            for name in (
                "reduce_bucket_size",
                "overlap_comm",
                "stage3_max_live_parameters",
                "stage3_max_reuse_distance",
                "stage3_prefetch_bucket_size",
                "sub_group_size",
            )
        ),
    ),
    Word(AXOLOTL, "parallel.options.no_sync", (), AXOLOTL_KEYS),
    *(
        Word(formats, "parallel.strategy", (("deepspeed", ZERO_FILE.replace("%s", stage)),), source, f"zero{stage}")
        for formats, source in ((TUNERS, ARGUMENTS), (AXOLOTL, AXOLOTL_KEYS))
        for stage in "123"
    ),
    Word((*TUNERS, *AXOLOTL, *ZERO), "stack.framework", (), ARGUMENTS, "deepspeed"),
    Word(TRAINER, "parallel.strategy", (("fsdp", "full_shard"), ("fsdp_config", FSDP_FILE)), ARGUMENTS, "fsdp2"),
    Word(TITAN, "offload.params", (("training.enable_cpu_offload", "true"),), TITAN_KEYS, "cpu"),
    Word(TITAN, "offload.optimizer", (("training.enable_cpu_offload", "true"),), TITAN_KEYS, "cpu"),
    Word(
        MEGATRON,
        "optimizer.states",
        (("use-precision-aware-optimizer", ""), ("exp-avg-dtype", "bf16"), ("exp-avg-sq-dtype", "bf16")),
        MEGATRON_KEYS,
        MOMENTS,
    ),
    *same(
        BRIDGE,
        BRIDGE_KEYS,
        ("batch.micro_batch", "train.micro_batch_size"),
        ("parallel.tp", "model.tensor_model_parallel_size"),
        ("parallel.cp", "model.context_parallel_size"),
        ("parallel.pp", "model.pipeline_model_parallel_size"),
        ("parallel.ep", "model.expert_model_parallel_size"),
        ("parallel.sp", "model.sequence_parallel"),
    ),
    Word(
        BRIDGE,
        RECOMPUTE,
        (
            ("model.recompute_granularity", "full"),
            ("model.recompute_method", "uniform"),
            ("model.recompute_num_layers", "1"),
        ),
        BRIDGE_KEYS,
        FULL_UNIFORM,
    ),
    Word(
        BRIDGE,
        RECOMPUTE,
        (("model.recompute_granularity", "selective"), ("model.recompute_modules", "[core_attn]")),
        BRIDGE_KEYS,
        CORE,
    ),
    Word(BRIDGE, "parallel.strategy", (("ddp.use_distributed_optimizer", "true"),), BRIDGE_KEYS, "megatron-distopt"),
)
