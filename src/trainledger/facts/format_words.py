"""How outside formats say keys of the plan that advice changes: the key to write, and its value."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source

ANY = object()
VALUE = "{value}"  # where the plan's own value stands in a template


@dataclass(frozen=True, slots=True)
class Word:
    """One key of the plan in formats whose names begin so: lines `key: value` of the format (dotted where nested), for
    one value of the plan's key or for any. No lines: the format's default says it."""

    formats: tuple[str, ...]
    path: str
    lines: tuple[tuple[str, str], ...]
    source: Source
    value: object = ANY


TRAINER = ("TrainingArguments", "TRL", "accelerate command", "python command", "torchrun", "launch script", "command")
TUNERS = (*TRAINER, "LLaMA-Factory", "ms-swift")
AXOLOTL, FACTORY, SWIFT = ("Axolotl",), ("LLaMA-Factory",), ("ms-swift",)
ZERO, TUNE, TITAN, LITGPT = ("DeepSpeed",), ("torchtune",), ("torchtitan",), ("litgpt",)
MEGATRON, BRIDGE = ("Megatron-LM",), ("Megatron-Bridge",)
ARGUMENTS = Source("Transformers TrainingArguments", "src/transformers/training_args.py", "5.24.0")
AXOLOTL_KEYS = Source("Axolotl configuration", "docs.axolotl.ai/docs/config-reference.html", "0.12")
FACTORY_KEYS = Source("LLaMA-Factory arguments", "src/llamafactory/hparams", "0.9.4")
SWIFT_KEYS = Source("ms-swift arguments", "docs: Command-line-parameters", "3.9")
ZERO_KEYS = Source("DeepSpeed configuration", "deepspeed/runtime/zero/config.py", "0.19.6")
TUNE_KEYS = Source("torchtune recipes' configurations", "recipes/configs", "0.6")
TITAN_KEYS = Source("torchtitan settings", "torchtitan/config/job_config.py", "2025-08")
LITGPT_KEYS = Source("LitGPT settings", "litgpt/finetune, litgpt/args.py", "0.5")
MEGATRON_KEYS = Source("Megatron-LM arguments", "megatron/training/arguments.py", "2026-08")
FULL = {"kind": "full"}
FULL_PLAIN = {"kind": "full", "reentrant": False}
FULL_UNIFORM = {"kind": "full", "method": "uniform", "num_layers": 1}
CORE = {"kind": "selective", "modules": ["core_attn"]}
BY_OPERATION = {"kind": "selective", "policy": "op"}
SECOND = {"kind": "selective", "policy": "every 2nd layer"}
RECOMPUTE = "stack.recompute"


def same(formats: tuple[str, ...], source: Source, *pairs: tuple[str, str]) -> tuple[Word, ...]:
    """Keys that take the plan's value as it is: the plan's key, and the format's."""
    return tuple(Word(formats, path, ((key, VALUE),), source) for path, key in pairs)


def states(formats: tuple[str, ...], source: Source, key: str) -> tuple[Word, ...]:
    """The optimizers of advice under Transformers' names."""
    named = (
        ("adamw-8bit", "adamw_bnb_8bit"),
        ("paged-adamw-8bit", "paged_adamw_8bit"),
        ("paged-adamw-32bit", "paged_adamw_32bit"),
        ("adafactor", "adafactor"),
        ("lion", "lion_32bit"),
    )
    return tuple(Word(formats, "optimizer.name", ((key, text),), source, value) for value, text in named)


BATCHES: tuple[Word, ...] = (
    *same(
        TUNERS,
        ARGUMENTS,
        ("batch.micro_batch", "per_device_train_batch_size"),
        ("batch.accumulation", "gradient_accumulation_steps"),
    ),
    *same(
        AXOLOTL,
        AXOLOTL_KEYS,
        ("batch.micro_batch", "micro_batch_size"),
        ("batch.accumulation", "gradient_accumulation_steps"),
        ("batch.sequence", "sequence_len"),
    ),
    *same(TRAINER, ARGUMENTS, ("batch.sequence", "max_length")),
    *same(FACTORY, FACTORY_KEYS, ("batch.sequence", "cutoff_len"), ("adapter.r", "lora_rank")),
    *same(SWIFT, SWIFT_KEYS, ("batch.sequence", "max_length"), ("adapter.r", "lora_rank")),
    *same(
        TUNE,
        TUNE_KEYS,
        ("batch.micro_batch", "batch_size"),
        ("batch.accumulation", "gradient_accumulation_steps"),
        ("batch.sequence", "tokenizer.max_seq_len"),
        ("adapter.r", "model.lora_rank"),
    ),
    *same(
        TITAN,
        TITAN_KEYS,
        ("batch.micro_batch", "training.local_batch_size"),
        ("batch.sequence", "training.seq_len"),
        ("parallel.tp", "parallelism.tensor_parallel_degree"),
        ("parallel.cp", "parallelism.context_parallel_degree"),
        ("parallel.pp", "parallelism.pipeline_parallel_degree"),
        ("parallel.ep", "parallelism.expert_parallel_degree"),
    ),
    *same(
        LITGPT,
        LITGPT_KEYS,
        ("batch.micro_batch", "train.micro_batch_size"),
        ("batch.sequence", "train.max_seq_length"),
        ("adapter.r", "lora_r"),
    ),
    *same(
        MEGATRON,
        MEGATRON_KEYS,
        ("batch.micro_batch", "micro-batch-size"),
        ("batch.sequence", "seq-length"),
        ("parallel.tp", "tensor-model-parallel-size"),
        ("parallel.cp", "context-parallel-size"),
        ("parallel.pp", "pipeline-model-parallel-size"),
        ("parallel.ep", "expert-model-parallel-size"),
    ),
    *same(AXOLOTL, AXOLOTL_KEYS, ("adapter.r", "lora_r")),
)

RECOMPUTES: tuple[Word, ...] = (
    Word(
        (*TUNERS, *AXOLOTL),
        RECOMPUTE,
        (("gradient_checkpointing", "true"), ("gradient_checkpointing_kwargs", "{use_reentrant: false}")),
        ARGUMENTS,
        FULL_PLAIN,
    ),
    Word(TUNE, RECOMPUTE, (("enable_activation_checkpointing", "true"),), TUNE_KEYS, FULL),
    Word(TITAN, RECOMPUTE, (("activation_checkpoint.mode", '"full"'),), TITAN_KEYS, FULL),
    Word(
        TITAN,
        RECOMPUTE,
        (("activation_checkpoint.mode", '"selective"'), ("activation_checkpoint.selective_ac_option", '"op"')),
        TITAN_KEYS,
        BY_OPERATION,
    ),
    Word(
        TITAN,
        RECOMPUTE,
        (("activation_checkpoint.mode", '"selective"'), ("activation_checkpoint.selective_ac_option", '"2"')),
        TITAN_KEYS,
        SECOND,
    ),
    Word(
        MEGATRON,
        RECOMPUTE,
        (("recompute-granularity", "full"), ("recompute-method", "uniform"), ("recompute-num-layers", "1")),
        MEGATRON_KEYS,
        FULL_UNIFORM,
    ),
    Word(
        MEGATRON,
        RECOMPUTE,
        (("recompute-granularity", "selective"), ("recompute-modules", "core_attn")),
        MEGATRON_KEYS,
        CORE,
    ),
)

KERNELS: tuple[Word, ...] = (
    Word(TRAINER, "stack.attention", (("attn_implementation", "flash_attention_2"),), ARGUMENTS, "flash"),
    Word(TRAINER, "stack.attention", (("attn_implementation", "sdpa"),), ARGUMENTS, "sdpa"),
    Word(AXOLOTL, "stack.attention", (("flash_attention", "true"),), AXOLOTL_KEYS, "flash"),
    Word(AXOLOTL, "stack.attention", (("sdp_attention", "true"),), AXOLOTL_KEYS, "sdpa"),
    Word(FACTORY, "stack.attention", (("flash_attn", "fa2"),), FACTORY_KEYS, "flash"),
    Word(FACTORY, "stack.attention", (("flash_attn", "sdpa"),), FACTORY_KEYS, "sdpa"),
    Word(SWIFT, "stack.attention", (("attn_impl", "flash_attn"),), SWIFT_KEYS, "flash"),
    Word(TRAINER, "stack.loss", (("use_liger_kernel", "true"),), ARGUMENTS, "fused-linear"),
    Word(SWIFT, "stack.loss", (("use_liger_kernel", "true"),), SWIFT_KEYS, "fused-linear"),
    Word(FACTORY, "stack.loss", (("enable_liger_kernel", "true"),), FACTORY_KEYS, "fused-linear"),
    Word(
        AXOLOTL,
        "stack.loss",
        (("plugins", "[axolotl.integrations.liger.LigerPlugin]"), ("liger_fused_linear_cross_entropy", "true")),
        AXOLOTL_KEYS,
        "fused-linear",
    ),
    Word(TUNERS, "stack.kernels", (), ARGUMENTS),
    Word(
        AXOLOTL,
        "stack.kernels",
        (("liger_rope", "true"), ("liger_rms_norm", "true"), ("liger_glu_activation", "true")),
        AXOLOTL_KEYS,
        ["liger"],
    ),
    Word(
        TUNE,
        "stack.loss",
        (("loss._component_", "torchtune.modules.loss.CEWithChunkedOutputLoss"),),
        TUNE_KEYS,
        "chunked",
    ),
)

OPTIMIZERS: tuple[Word, ...] = (
    *states(TUNERS, ARGUMENTS, "optim"),
    *states(AXOLOTL, AXOLOTL_KEYS, "optimizer"),
    Word(TUNERS, "optimizer.implementation", (("optim", "adamw_torch_fused"),), ARGUMENTS, "fused"),
    Word(AXOLOTL, "optimizer.implementation", (("optimizer", "adamw_torch_fused"),), AXOLOTL_KEYS, "fused"),
    Word(TUNE, "optimizer.implementation", (("optimizer.fused", "true"),), TUNE_KEYS, "fused"),
    Word(TUNE, "optimizer.in_backward", (("optimizer_in_bwd", "true"),), TUNE_KEYS, True),
    Word(
        TUNE,
        "optimizer.name",
        (("optimizer._component_", "bitsandbytes.optim.PagedAdamW8bit"),),
        TUNE_KEYS,
        "paged-adamw-8bit",
    ),
    Word(TUNE, "optimizer.name", (("optimizer._component_", "bitsandbytes.optim.AdamW8bit"),), TUNE_KEYS, "adamw-8bit"),
    Word(TITAN, "optimizer.implementation", (("optimizer.implementation", '"fused"'),), TITAN_KEYS, "fused"),
    Word(
        FACTORY,
        "quantization",
        (("quantization_bit", "4"), ("quantization_method", "bnb"), ("double_quantization", "true")),
        FACTORY_KEYS,
    ),
    Word(AXOLOTL, "quantization", (("adapter", "qlora"), ("load_in_4bit", "true")), AXOLOTL_KEYS),
    Word(
        TRAINER,
        "quantization",
        (("load_in_4bit", "true"), ("bnb_4bit_quant_type", "nf4"), ("use_bnb_nested_quant", "true")),
        ARGUMENTS,
    ),
    Word(SWIFT, "quantization", (("quant_method", "bnb"), ("quant_bits", "4")), SWIFT_KEYS),
    Word(FACTORY, "adapter", (("finetuning_type", "lora"), ("lora_rank", "16"), ("lora_target", "all")), FACTORY_KEYS),
    Word(AXOLOTL, "adapter", (("adapter", "lora"), ("lora_r", "16"), ("lora_target_linear", "true")), AXOLOTL_KEYS),
    Word(
        TRAINER, "adapter", (("use_peft", "true"), ("lora_r", "16"), ("lora_target_modules", "all-linear")), ARGUMENTS
    ),
    Word(SWIFT, "adapter", (("train_type", "lora"), ("lora_rank", "16"), ("target_modules", "all-linear")), SWIFT_KEYS),
    Word(MEGATRON, "parallel.sp", (("sequence-parallel", ""),), MEGATRON_KEYS, True),
    Word(MEGATRON, "parallel.strategy", (("use-distributed-optimizer", ""),), MEGATRON_KEYS, "megatron-distopt"),
)

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
)

WORDS: tuple[Word, ...] = (*BATCHES, *RECOMPUTES, *KERNELS, *OPTIMIZERS, *SHARDING)
# Settings of the allocator are variables of the environment, whatever starts the run.
ALLOCATOR_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
ALLOCATOR_PATH = "stack.allocator."
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".cmd")
