"""LitGPT's configurations and commands: their keys, its names of models and optimizers, and what its scripts fill in.

Read in source: litgpt/{args,config,pretrain,utils}.py, litgpt/finetune/{lora,full}.py, config_hub (0.3.1 to 0.5.13);
lightning/fabric/plugins/precision/fsdp.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.import_rows import FilledRow, KeyRow, nothing, read, uncounted
from trainledger.facts.import_words import WordRow, words
from trainledger.facts.option_row import Direction

LOW, EITHER = Direction.LOW, Direction.EITHER


def _read(where: str, read: str = "0.3.1 to 0.5.13") -> Source:
    return Source("LitGPT", f"litgpt/{where}", read)


SETUP = _read("finetune/{lora,full}.py, pretrain.py, setup; args.py, TrainArgs")
SCRIPTS = _read("finetune/{lora,full}.py, pretrain.py, main and fit")
NAMES = _read("config.py, configs")
FABRIC = Source("Lightning Fabric", "lightning/fabric/plugins/precision/{half,amp,fsdp}.py", "2.2 to 2.5")

KEYS: tuple[KeyRow, ...] = (
    *read(
        SETUP,
        "checkpoint_dir model_name model_config precision quantize devices num_nodes lora_r lora_dropout lora_query "
        "lora_key lora_value lora_projection lora_mlp lora_head optimizer optimizer.class_path optimizer.init_args.* "
        "train.global_batch_size train.micro_batch_size train.max_seq_length train.max_norm train.tie_embeddings "
        "initial_checkpoint_dir".split(),
    ),
    *nothing(
        SETUP,
        "out_dir resume data data.* train.save_interval train.log_interval train.lr_warmup_steps "
        "train.lr_warmup_fraction train.epochs train.max_tokens train.max_steps train.max_time train.min_lr "
        "train.learning_rate train.weight_decay train.beta1 train.beta2 eval.* log log.* lora_alpha logger_name seed "
        "access_token tokenizer_dir config io.*".split(),
    ),
    *uncounted(SETUP, (("model_config.*", EITHER), ("accelerator", EITHER), ("strategy", EITHER), ("compiler", LOW))),
)

_SHARED = {"hidden_act": "gelu", "rotary_pct": 0.25, "use_parallel_residual": True}
STABLELM_3B = {
    "model_type": "gpt_neox",
    "hidden_size": 4096,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "head_dim": 128,
    "intermediate_size": 16384,
    "vocab_size": 50688,
    **_SHARED,
}
STABLELM_7B = {
    **STABLELM_3B,
    "hidden_size": 6144,
    "num_attention_heads": 48,
    "num_key_value_heads": 48,
    "intermediate_size": 24576,
    "vocab_size": 50432,
}

MICRO_LLAMA = {
    "model_type": "llama",
    "hidden_size": 1024,
    "num_hidden_layers": 12,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 5632,
    "vocab_size": 32000,
}


def _each(name: str, model: str, sizes: str, kinds: tuple[str, ...] = ("",)) -> Iterator[tuple[str, str]]:
    """LitGPT's names of one series in all sizes and kinds, with the catalogue's names."""
    for size in sizes.split():
        for kind in kinds:
            yield name.format(size=size, kind=kind), model.format(size=size)


_CHAT, _IT, _INSTRUCT, _BEFORE = ("", "-chat"), ("", "-it"), ("", "-instruct"), ("", "instruct-")
# By the last part of a checkpoint's folder, in lower case.
MODELS: dict[str, WordRow] = {
    **words(
        NAMES,
        (
            *_each("pythia-{size}{kind}", "pythia-{size}", "14m 70m 160m 410m 1b 1.4b 2.8b 6.9b 12b", ("", "-deduped")),
            *_each("falcon-{size}{kind}", "falcon-{size}", "7b 40b", _INSTRUCT),
            ("falcon-180b", "falcon-180b"),
            *_each("falcon3-{size}{kind}", "falcon3-{size}", "1b 3b 7b 10b", ("-base", "-instruct")),
            ("open_llama_3b", "open-llama-3b"),
            *_each("open_llama_{size}", "llama-{size}", "7b 13b"),
            *_each("vicuna-{size}-v1.5", "vicuna-{size}-v1.5", "7b 13b"),
            *_each("llama-2-{size}{kind}-hf", "llama-2-{size}", "7b 13b 70b", _CHAT),
            *_each("meta-llama-3-{size}{kind}", "llama-3-{size}", "8b 70b", _INSTRUCT),
            *_each("llama-3-{size}{kind}", "llama-3-{size}", "8b 70b", _INSTRUCT),
            *_each("meta-llama-3.1-{size}{kind}", "llama-3.1-{size}", "8b 70b 405b", _INSTRUCT),
            *_each("llama-3.1-{size}{kind}", "llama-3.1-{size}", "8b 70b 405b", _INSTRUCT),
            *_each("llama-3.2-{size}{kind}", "llama-3.2-{size}", "1b 3b", _INSTRUCT),
            ("llama-3.3-70b-instruct", "llama-3.3-70b"),
            *_each("gemma-{size}{kind}", "gemma-{size}", "2b 7b", _IT),
            *_each("codegemma-{size}-it", "gemma-{size}", "7b"),
            *_each("gemma-2-{size}{kind}", "gemma-2-{size}", "2b 9b 27b", _IT),
            ("gemma-3-1b-it", "gemma-3-1b"),
            *_each("codellama-{size}{kind}-hf", "codellama-{size}", "7b 13b 34b", ("", "-instruct", "-python")),
            ("phi-1_5", "phi-1.5"),
            ("phi-1.5", "phi-1.5"),
            ("phi-2", "phi-2"),
            *_each("phi-3-mini-{size}-instruct", "phi-3-mini", "4k 128k"),
            ("phi-3.5-mini-instruct", "phi-3.5-mini"),
            ("phi-4", "phi-4"),
            ("phi-4-mini-instruct", "phi-4-mini"),
            *_each("mistral-7b-{kind}{size}", "mistral-7b-{size}", "v0.1 v0.2 v0.3", _BEFORE),
            *_each("mixtral-{size}-{kind}v0.1", "mixtral-{size}", "8x7b 8x22b", _BEFORE),
            *_each("tiny-llama-1.1b{kind}", "tinyllama-1.1b", "one", _CHAT),
            *_each("tinyllama-1.1b-{kind}", "tinyllama-1.1b", "one", ("intermediate-step-1431k-3t", "chat-v1.0")),
            *_each("qwen2.5-{size}{kind}", "qwen2.5-{size}", "0.5b 1.5b 3b 7b 14b 32b 72b", _INSTRUCT),
            *_each("qwen3-{size}{kind}", "qwen3-{size}", "0.6b 1.7b 4b 8b 14b", ("", "-base")),
            ("qwen3-32b", "qwen3-32b"),
            ("qwen3-30b-a3b", "qwen3-30b-a3b"),
            ("qwq-32b", "qwq-32b"),
            *_each("smollm2-{size}{kind}", "smollm2-{size}", "135m 360m 1.7b", _INSTRUCT),
            *_each("{kind}r1-distill-llama-{size}", "deepseek-r1-distill-llama-{size}", "8b 70b", ("", "deepseek-")),
        ),
    ),
    **{name: WordRow(name, "", NAMES, MICRO_LLAMA) for name in ("micro-llama-300m", "microllama")},
    **{
        f"stablelm-{kind}-alpha-{size}": WordRow(f"stablelm-{kind}-alpha-{size}", "", NAMES, keys)
        for kind in ("base", "tuned")
        for size, keys in (("3b", STABLELM_3B), ("7b", STABLELM_7B))
    },
}

PRECISIONS: dict[str, WordRow] = {
    row.name: row
    for row in (
        WordRow("bf16-true", "bf16", FABRIC),
        WordRow("16-true", "fp16", FABRIC),
        WordRow("32-true", "fp32", FABRIC),
        WordRow("32", "fp32", FABRIC),
        WordRow("bf16-mixed", "fp32", FABRIC, {"compute": "bf16"}),
        WordRow("16-mixed", "fp32", FABRIC, {"compute": "fp16", "grad_scaler": True}),
    )
}
PRECISION = WordRow("bf16-mixed", "fp32", _read("utils.py, get_default_supported_precision"))
QUANTIZERS: dict[str, WordRow] = {
    row.name: row
    for row in (
        WordRow("bnb.nf4", "nf4", SETUP),
        WordRow("bnb.nf4-dq", "nf4", SETUP, {"double": True}),
        WordRow("bnb.fp4", "fp4", SETUP),
        WordRow("bnb.fp4-dq", "fp4", SETUP, {"double": True}),
        WordRow("bnb.int8-training", "int8", SETUP),
    )
}
QUANTISED_OPTIMIZER = WordRow("AdamW", "paged-adamw-32bit", _read("utils.py, instantiate_bnb_optimizer"))
OPTIMIZERS: dict[str, WordRow] = words(
    _read("utils.py, instantiate_torch_optimizer"),
    (
        *((f"{module}{name}", plain) for module in ("", "torch.optim.") for name, plain in (
            ("AdamW", "adamw"), ("Adam", "adam"), ("SGD", "sgd"), ("RMSprop", "rmsprop"), ("Adagrad", "adagrad"),
            ("NAdam", "nadam"), ("RAdam", "radam"),
        )),
        *((f"{module}.{name}", plain) for module in ("bitsandbytes.optim", "bnb.optim") for name, plain in (
            ("AdamW8bit", "adamw-8bit"), ("Adam8bit", "adam-8bit"), ("PagedAdamW", "paged-adamw-32bit"),
            ("PagedAdamW8bit", "paged-adamw-8bit"), ("Lion8bit", "lion-8bit"),
        )),
        ("galore_torch.GaLoreAdamW", "galore-adamw"),
        ("galore_torch.GaLoreAdamW8bit", "galore-adamw-8bit"),
    ),
)  # fmt: skip
TORCH = ("", "torch.optim")
FUSED = ("adamw", "adam", "sgd", "adagrad")  # optimizers of PyTorch that take `fused`
LORA, FULL, PRETRAIN, ADAPTER = "lora", "full", "pretrain", "adapter"
COMMANDS: dict[str, WordRow] = words(
    Source("LitGPT", "litgpt/__main__.py", "0.3.1 to 0.5.13"),
    (
        ("finetune", LORA),
        ("finetune_lora", LORA),
        ("finetune_lora_legacy", LORA),
        ("finetune_full", FULL),
        ("finetune_adapter", ADAPTER),
        ("finetune_adapter_v2", ADAPTER),
        ("pretrain", PRETRAIN),
    ),
)
SCRIPTS_OF: dict[str, WordRow] = words(
    _read("finetune, pretrain.py"),
    (
        ("finetune/lora.py", LORA),
        ("finetune/full.py", FULL),
        ("finetune/adapter.py", ADAPTER),
        ("finetune/adapter_v2.py", ADAPTER),
        ("litgpt/pretrain.py", PRETRAIN),
    ),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """What a script has where its keys are left out."""

    rank: int
    dropout: float
    targets: tuple[str, ...]
    global_batch: int
    micro_batch: int
    source: Source


TUNE = Settings(8, 0.05, ("query", "value"), 16, 1, _read("finetune/lora.py, setup"))
TRAIN = Settings(8, 0.05, ("query", "value"), 512, 4, _read("pretrain.py, setup"))
SHARDED = _read("finetune/{lora,full}.py, FSDPStrategy; parallelize_fn from 0.5.11 on")
FILLED: tuple[FilledRow, ...] = (
    FilledRow("stack.loss", "chunked", "litgpt: chunked_cross_entropy", _read("utils.py")),
    FilledRow("stack.attention", "sdpa", "litgpt: scaled_dot_product_attention", _read("model.py")),
)
TUNE_FILLED: tuple[FilledRow, ...] = (
    FilledRow("task", "sft", "litgpt finetune", SCRIPTS),
    FilledRow("stack.compile", False, "litgpt finetune does not compile", SCRIPTS),
)
TRAIN_FILLED: tuple[FilledRow, ...] = (
    FilledRow("task", "pretrain", "litgpt pretrain", SCRIPTS),
    FilledRow("stack.compile", True, "litgpt pretrain: torch.compile(model)", SCRIPTS),
    FilledRow("optimizer.grad_clip", 1.0, "litgpt pretrain: max_norm 1.0", SETUP),
    FilledRow("stack.recompute", "none", "litgpt pretrain recomputes nothing", SCRIPTS),
)
ALONE_FILLED: tuple[FilledRow, ...] = (
    FilledRow("parallel.strategy", "none", "litgpt on one device", SHARDED),
    FilledRow("stack.recompute", "none", "litgpt on one device recomputes nothing", SHARDED),
)
SPREAD_FILLED: tuple[FilledRow, ...] = (
    FilledRow("parallel.reshard_after_forward", True, "litgpt shards weights, gradients and states", SHARDED),
    FilledRow("stack.recompute", {"kind": "full", "reentrant": False}, "litgpt recomputes every block", SHARDED),
)
LORA_SPREAD: tuple[FilledRow, ...] = (
    FilledRow("parallel.strategy", "fsdp1", "litgpt on several devices", SHARDED, until="0.5.11"),
    FilledRow("parallel.strategy", "fsdp2", "litgpt's LoRA on several devices", SHARDED, since="0.5.11"),
)
FULL_SPREAD: tuple[FilledRow, ...] = (FilledRow("parallel.strategy", "fsdp1", "litgpt on several devices", SHARDED),)
APART = FilledRow(
    "model.tie_word_embeddings",
    False,
    "litgpt keeps head and embedding apart",
    _read("model.py; args.py, tie_embeddings"),
)
CAPPED: dict[str, FilledRow] = {
    "gemma2": FilledRow(
        "stack.attention", "eager", "litgpt writes attention out where scores are capped", _read("model.py")
    )
}
