"""How formats that nothing writes say keys of the plan which advice changes: the key to write, and its value."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source

ANY = object()
VALUE = "{value}"  # where the plan's own value stands in a template


@dataclass(frozen=True, slots=True)
class Word:
    """One key of the plan in a format whose name begins so: lines `key: value` of the format (dotted where nested), for
    one value of the plan's key or for any. No lines: the format's default says it."""

    format: str
    path: str
    lines: tuple[tuple[str, str], ...]
    source: Source
    value: object = ANY


SWIFT, LITGPT, BRIDGE = "ms-swift", "litgpt", "Megatron-Bridge"
ARGUMENTS = Source("ms-swift arguments", "docs: Command-line-parameters", "3.9")
LITGPT_KEYS = Source("LitGPT settings", "litgpt/finetune, litgpt/args.py", "0.5")
BRIDGE_KEYS = Source("Megatron-Bridge configuration", "megatron/bridge/training/config.py", "0.2")
FULL_PLAIN = {"kind": "full", "reentrant": False}
FULL_UNIFORM = {"kind": "full", "method": "uniform", "num_layers": 1}
CORE = {"kind": "selective", "modules": ["core_attn"]}
RECOMPUTE = "stack.recompute"
ZERO_FILE = "a file with {zero_optimization: {stage: %s}, bf16: {enabled: true}}"
OPTIMS = (
    ("adamw-8bit", "adamw_bnb_8bit"),
    ("paged-adamw-8bit", "paged_adamw_8bit"),
    ("paged-adamw-32bit", "paged_adamw_32bit"),
    ("adafactor", "adafactor"),
    ("lion", "lion_32bit"),
)


def same(name: str, source: Source, *pairs: tuple[str, str]) -> tuple[Word, ...]:
    """Keys that take the plan's value as it is: the plan's key, and the format's."""
    return tuple(Word(name, path, ((key, VALUE),), source) for path, key in pairs)


SWIFTS: tuple[Word, ...] = (
    *same(
        SWIFT,
        ARGUMENTS,
        ("batch.micro_batch", "per_device_train_batch_size"),
        ("batch.accumulation", "gradient_accumulation_steps"),
        ("batch.sequence", "max_length"),
        ("adapter.r", "lora_rank"),
    ),
    Word(
        SWIFT,
        RECOMPUTE,
        (("gradient_checkpointing", "true"), ("gradient_checkpointing_kwargs", "{use_reentrant: false}")),
        ARGUMENTS,
        FULL_PLAIN,
    ),
    Word(SWIFT, "stack.attention", (("attn_impl", "flash_attn"),), ARGUMENTS, "flash"),
    Word(SWIFT, "stack.loss", (("use_liger_kernel", "true"),), ARGUMENTS, "fused-linear"),
    Word(SWIFT, "stack.kernels", (), ARGUMENTS),
    *(Word(SWIFT, "optimizer.name", (("optim", text),), ARGUMENTS, value) for value, text in OPTIMS),
    Word(SWIFT, "optimizer.implementation", (("optim", "adamw_torch_fused"),), ARGUMENTS, "fused"),
    Word(SWIFT, "quantization", (("quant_method", "bnb"), ("quant_bits", "4")), ARGUMENTS),
    Word(SWIFT, "adapter", (("train_type", "lora"), ("lora_rank", "16"), ("target_modules", "all-linear")), ARGUMENTS),
    *(
        Word(SWIFT, "parallel.strategy", (("deepspeed", ZERO_FILE.replace("%s", stage)),), ARGUMENTS, f"zero{stage}")
        for stage in "123"
    ),
    Word(SWIFT, "stack.framework", (), ARGUMENTS, "deepspeed"),
)

WORDS: tuple[Word, ...] = (
    *SWIFTS,
    *same(
        LITGPT,
        LITGPT_KEYS,
        ("batch.micro_batch", "train.micro_batch_size"),
        ("batch.sequence", "train.max_seq_length"),
        ("adapter.r", "lora_r"),
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
# Settings of the allocator are variables of the environment, whatever starts the run.
ALLOCATOR_VARIABLE = "PYTORCH_CUDA_ALLOC_CONF"
ALLOCATOR_PATH = "stack.allocator."
SCRIPTS = (".sh", ".bash", ".sbatch", ".slurm", ".cmd")
