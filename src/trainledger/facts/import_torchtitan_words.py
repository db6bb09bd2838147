"""torchtitan's words: schedules, dtypes, its own configurations, and what is there when a key is left out.

Read in source: torchtitan/models/*/__init__.py, models/*/train_configs, models/*/config_registry.py, components,
distributed, run_train.sh (2024-04 to 2026-08).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow
from trainledger.facts.import_torchtitan import SETTINGS
from trainledger.facts.import_words import WordRow, words


def _read(where: str, read: str = "0.0.2 to 0.2.2, 2026-08") -> Source:
    return Source("torchtitan", where, read)


MESH = _read("distributed/parallel_dims.py; parallelisms")
PIPELINE = _read("distributed/pipeline_parallel.py, pipeline_llm")
TRAIN = _read("train.py, train_step; distributed/utils.py, maybe_enable_amp")

OPTIMIZERS: dict[str, WordRow] = words(
    _read("components/optimizer.py"), (("AdamW", "adamw"), ("Adam", "adam"), ("Muon", "muon"))
)
IMPLEMENTATIONS: dict[str, WordRow] = words(
    _read("components/optimizer.py"), (("fused", "fused"), ("foreach", "foreach"), ("for-loop", "loop"))
)
DTYPES: dict[str, WordRow] = words(
    _read("config, TORCH_DTYPE_MAP"), (("float32", "fp32"), ("bfloat16", "bf16"), ("float16", "fp16"))
)
SCHEDULES: dict[str, WordRow] = {
    row.name: row
    for row in (
        WordRow("1f1b", "1f1b", PIPELINE),
        WordRow("gpipe", "gpipe", PIPELINE),
        WordRow("interleaved1f1b", "interleaved", PIPELINE, {"vpp": 2}),
        WordRow("interleavedzerobubble", "zb-h1", PIPELINE, {"vpp": 2}),
        WordRow("zbvzerobubble", "zb-v", PIPELINE, {"vpp": 2}),
        WordRow("dualpipev", "dualpipev", PIPELINE, {"vpp": 2}),
    )
}
_ACS = _read("distributed/activation_checkpoint.py; SelectiveAC, FullAC of 2026")
RECOMPUTES: dict[str, WordRow] = words(
    _ACS,
    (
        ("none", "none"),
        ("full", "full"),
        ("selective", "selective"),
        ("full-ac", "full"),
        ("selective-ac", "op"),
        ("memory_budget", "budget"),
        ("memory-budget-ac", "budget"),
    ),
)


def _preset(name: str, flavour: str, micro: int, sequence: int, **more: object) -> WordRow:
    family, _, size = flavour.partition("/")
    keys = {
        "model.name": family,
        "model.flavor": size,
        "training.local_batch_size": micro,
        "training.seq_len": sequence,
        **{key.replace("__", "."): value for key, value in more.items()},
    }
    return WordRow(name, flavour, _read("models/*/train_configs/*.toml; config_registry.py", "0.2.0, 2026-08"), keys)


_OP = {"activation_checkpoint__mode": "selective", "activation_checkpoint__selective_ac_option": "op"}
_FULL = {"activation_checkpoint__mode": "full"}
_TP8 = {"parallelism__tensor_parallel_degree": 8}
_LOSS = {"compile__enable": True, "compile__components": ["loss"]}
_LOOPED = {"parallelism__pipeline_parallel_schedule": "Interleaved1F1B"}
_MODEL = {"compile__enable": True, "compile__components": ["model"]}
_MX = {"model__converters": ["mx"], "quantize__linear__mx__recipe_name": "mxfp8_cublas"}
_FP8_405B = {
    "model__converters": ["float8"],
    "quantize__linear__float8__enable_fsdp_float8_all_gather": True,
    "parallelism__enable_async_tensor_parallel": True,
    "compile__enable": True,
}
# Configurations that come with torchtitan: a TOML file's name without its ending, or a function of config_registry.py.
PRESETS: dict[str, WordRow] = {
    row.name: row
    for row in (
        _preset("llama3_debugmodel", "llama3/debugmodel", 8, 2048, activation_checkpoint__mode="selective", **_LOOPED),
        _preset("deepseek_v3_debugmodel", "deepseek_v3/debugmodel", 8, 2048, **_OP),
        _preset("qwen3_debugmodel", "qwen3/debugmodel", 8, 2048, **_OP),
        _preset("qwen3_moe_debug", "qwen3/debugmodel_moe", 4, 4096, **_OP),
        _preset("gpt_oss_debugmodel", "gpt_oss/debugmodel", 8, 2048, activation_checkpoint__mode="none"),
        _preset("llama3_8b", "llama3/8B", 1, 8192, **_OP),
        _preset("llama3_8b_mxfp8", "llama3/8B", 1, 8192, **_OP, **_MODEL, **_MX),
        _preset("llama3_70b", "llama3/70B", 8, 8192, **_FULL, **_TP8),
        _preset("llama3_405b", "llama3/405B", 2, 8192, **_FULL, **_TP8, **_FP8_405B),
        _preset("qwen3_0_6b", "qwen3/0.6B", 4, 4096, **_OP),
        _preset("qwen3_0.6b", "qwen3/0.6B", 4, 4096, **_OP),
        _preset("qwen3_1_7b", "qwen3/1.7B", 4, 4096, **_OP),
        _preset("qwen3_1.7b", "qwen3/1.7B", 4, 4096, **_OP),
        _preset("qwen3_14b", "qwen3/14B", 4, 4096, **_FULL),
        _preset("qwen3_32b", "qwen3/32B", 2, 4096, **_FULL),
        _preset("qwen3_30b_a3b", "qwen3/30B-A3B", 2, 4096, **_FULL),
        _preset(
            "deepseek_v3_16b",
            "deepseek_v3/16B",
            4,
            4096,
            parallelism__expert_parallel_degree=8,
            **_OP,
            **_LOSS,
            **_LOOPED,
        ),
        _preset("deepseek_v3_671b", "deepseek_v3/671B", 4, 4096, **_OP, **_LOSS, **_LOOPED),
        _preset("gpt_oss_20b", "gpt_oss/20b", 1, 8192, **_FULL),
        _preset("gpt_oss_120b", "gpt_oss/120b", 1, 8192, **_FULL),
    )
}
# What a function of config_registry.py sets and the TOML file of its name does not.
REGISTRY: dict[str, WordRow] = {
    "deepseek_v3_671b": WordRow(
        "deepseek_v3_671b",
        "",
        _read("models/deepseek_v3/config_registry.py (#3127)", "6348d93d1, 2026-04-27"),
        {"parallelism.expert_parallel_degree": 2},
    )
}


@dataclass(frozen=True, slots=True)
class Settings:
    """What is there when a key is left out."""

    micro_batch: int
    sequence: int
    devices: int
    stages: int
    edges: int
    source: Source


DEFAULTS = Settings(8, 2048, 8, 2, 1, _read("config/job_config.py; run_train.sh, NGPU 8"))
TOML_VERSION = WordRow("TOML", "0.2.2", _read("assets/version.txt: the last release that reads TOML", "2026-02"))
OLD_VERSION = WordRow("TOML", "0.0.1", _read("degrees in [training], [experimental]: before 785c34c99", "2025-03-18"))
_ATTENTION = _read("models/*/model; models/*/__init__.py, model_registry")
MASKED: dict[str, tuple[FilledRow, ...]] = {
    "deepseek_v3": (
        FilledRow("stack.attention", "flex", "torchtitan: DeepSeek's flavours use flex attention", _ATTENTION, "0.2.0"),
    )
}  # families whose flavours turned to flex attention first
FILLED: tuple[FilledRow, ...] = (
    FilledRow("task", "pretrain", "torchtitan pre-trains", TRAIN),
    FilledRow("optimizer.name", "adamw", "torchtitan: optimizer.name AdamW", SETTINGS),
    FilledRow("optimizer.grad_clip", 1.0, "torchtitan: training.max_norm 1.0", SETTINGS),
    FilledRow("optimizer.implementation", "foreach", "torchtitan: optimizer.fused false", SETTINGS, until="0.0.2"),
    FilledRow(
        "optimizer.implementation", "fused", "torchtitan: optimizer.implementation fused", SETTINGS, since="0.0.2"
    ),
    FilledRow("stack.compile", False, "torchtitan: compile.enable false", SETTINGS),
    FilledRow("stack.attention", "sdpa", "torchtitan: scaled_dot_product_attention", _ATTENTION, until="0.2.3"),
    FilledRow("stack.attention", "flex", "torchtitan: flex attention for documents", _ATTENTION, since="0.2.3"),
    FilledRow(
        "stack.recompute",
        {"kind": "selective", "policy": "every 2nd layer"},
        "torchtitan: activation_checkpoint.mode selective, option 2",
        SETTINGS,
    ),
)
KEPT = FilledRow("save.limit", 10, "torchtitan: checkpoint.keep_latest_k 10", SETTINGS, since="0.1.0")
LOSS_FILLED: tuple[FilledRow, ...] = (
    FilledRow("stack.loss", "full-fp32", "torchtitan: cross_entropy_loss", _read("components/loss.py"), until="0.2.3"),
    FilledRow("stack.loss", "chunked", "torchtitan: ChunkedLossWrapper", _read("components/loss.py"), since="0.2.3"),
)
SCRIPTS = ("run_train.sh", "run_llama_train.sh")
MODULES = ("torchtitan.train", "torchtitan/train.py")
ALLOCATOR = FilledRow(
    "stack.allocator",
    {"expandable_segments": True},
    "run_train.sh sets expandable segments",
    _read("run_llama_train.sh, run_train.sh", "2024-10 to 2026-08"),
)
TENSORWISE = FilledRow(
    "precision.fp8.recipe", "tensorwise", "torchtitan: float8 without recipe_name", _read("components/float8.py")
)
BUCKETS = FilledRow(
    "parallel.options.bucket_cap_mb",
    100,
    "torchtitan: replicate(bucket_cap_mb=100)",
    _read("apply_ddp, replicate"),
    until="0.2.3",
)
