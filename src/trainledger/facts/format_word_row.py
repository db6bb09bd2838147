"""What a row of formats' words says, the formats, and where their keys are written."""

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
BRIDGE_KEYS = Source("Megatron-Bridge configuration", "megatron/bridge/training/config.py", "0.2")
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
