"""A plan as the arguments of Hugging Face's Trainer and of TRL: what every format around them is made of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainledger.facts.import_hf import (
    BEYOND_COUNTS,
    COUNTS,
    DDP_FLAGS,
    EVAL_STEPS,
    EVALUATED,
    EVALUATES,
    FLAGS,
    LEAN,
    NUMBERS,
    SHARES,
    SWITCHES,
    WEIGHTS_ONLY,
)
from trainledger.facts.import_hf_filled import ATTENTION_WORDS, DTYPE_WORDS, SFT, TRL_HEAD_SINCE, TRL_LOSSES
from trainledger.facts.import_hf_optim import OPTIMS, OptimRow
from trainledger.facts.preferences import LOSSES
from trainledger.facts.versions import at_least
from trainledger.importers.emit import ARGS, ENV, Lever, Line, Said, refuse, word
from trainledger.importers.hf_adapter import PLAIN, TEXTS
from trainledger.importers.hf_offload import ARGUMENT, OPTION, PLACE

HALF = ("bf16", "fp16")
NLL = "nll"  # TRL's loss over all logits
LENGTH = "max_length"
LORA = ("lora", "dora")
BITS = ("nf4", "fp4")
DEFAULT = "adamw"  # what the Trainer runs where no optimizer is named


def trainer_lines(said: Said, own: tuple[str, ...] = ()) -> Iterator[Line]:
    """Everything but the model's name, the dtypes and what shards. `own`: optimizers and adapters that the caller says
    itself.

    Raises InputError for what no argument says.
    """
    if said.whole("parallel.pp") > 1:
        raise refuse(said, "parallel.pp", "the Trainer has no pipeline")
    for path, names in COUNTS:
        if said.get(path) is not None:
            yield Line(ARGS, LENGTH if LENGTH in names else names[0], said.get(path), path)
    for path, names in FLAGS:
        if said.get(path):
            yield Line(ARGS, names[0], True, path)
    yield from _beyond(said)
    for name in (*SHARES, *SWITCHES):
        if (share := said.get(f"stack.options.{name}")) is not None:
            yield Line(ARGS, name, share, f"stack.options.{name}")
    for path in (PLACE, OPTION):
        if said.get(path):
            yield Line(ARGS, ARGUMENT, True, path)
    if losses := said.get(f"stack.options.{LOSSES}"):
        yield Line(ARGS, LOSSES, losses, f"stack.options.{LOSSES}")
    for name in NUMBERS:
        if value := said.get(f"stack.options.{name}"):
            yield Line(ARGS, name, value, f"stack.options.{name}")
    if said.get("optimizer.name") not in own:
        yield from _optimizer(said)
    yield Line(ARGS, "max_grad_norm", said.get("optimizer.grad_clip", 0.0), "optimizer.grad_clip")
    yield from _stack(said)
    yield from _recompute(said)
    if said.get("adapter.kind") not in own:
        yield from _adapter(said)
    yield from _bits(said)
    if said.get("parallel.strategy") == "ddp":
        yield from _ddp(said)


def _beyond(said: Said) -> Iterator[Line]:
    for path, name in BEYOND_COUNTS:
        if said.get(path):
            yield Line(ARGS, name, said.get(path), path)
    if said.get("save.optimizer") is False:
        yield Line(ARGS, WEIGHTS_ONLY, True, "save.optimizer")
    if said.get(f"stack.options.{LEAN}") is not None:
        yield Line(ARGS, LEAN, said.get(f"stack.options.{LEAN}"), f"stack.options.{LEAN}")
    if (rows := said.get("evaluation.micro_batch")) is not None:
        yield Line(ARGS, EVALUATES[0], "steps", "evaluation.micro_batch")
        yield Line(ARGS, EVALUATED[0], rows, "evaluation.micro_batch")
        if (steps := said.get("evaluation.accumulation")) is not None:
            yield Line(ARGS, EVAL_STEPS, steps, "evaluation.accumulation")


def _optimizer(said: Said) -> Iterator[Line]:
    row = optim_row(said)
    alike = row.implementation == said.get("optimizer.implementation", "")
    if alike or row.optimizer != DEFAULT:  # else the Trainer's own, whose step a plan's strategy may settle
        yield Line(ARGS, "optim", row.name, "optimizer.name")
    options = {key: value for key, value in said.below("optimizer.options").items() if key not in dict(row.options)}
    modules = options.pop("target_modules", None)
    if options:
        text = ",".join(f"{key}={value}" for key, value in options.items())
        yield Line(ARGS, "optim_args", text, "optimizer.options")
    if modules is not None:
        kept = modules if isinstance(modules, str) else list(modules)
        yield Line(ARGS, "optim_target_modules", kept, "optimizer.options.target_modules")


def optim_row(said: Said) -> OptimRow:
    """The Trainer's optimizer: of those of the plan's name one that steps alike. Raises InputError without one."""
    named = [row for row in OPTIMS.values() if row.optimizer == said.get("optimizer.name")]
    how, inside = said.get("optimizer.implementation", ""), said.get("optimizer.in_backward", False)
    same = [row for row in named if (row.implementation, row.in_backward) == (how, inside)]
    near = [row for row in named if row.in_backward == inside]
    if not named:
        raise refuse(said, "optimizer.name", "the Trainer has no optimizer of this kind")
    return (same or near or named)[0]


def _stack(said: Said) -> Iterator[Line]:
    kernel = said.get("stack.attention")
    if (name := word(ATTENTION_WORDS, kernel)) is not None:
        yield Line(ARGS, "attn_implementation", name, "stack.attention")
    if said.get("stack.compile"):
        yield Line(ARGS, "torch_compile", True, "stack.compile")
    if "liger" in said.get("stack.kernels", ()):
        yield Line(ARGS, "use_liger_kernel", True, "stack.kernels")
        if said.get("stack.loss") != "fused-linear":
            parts = {"fused_linear_cross_entropy": False, "cross_entropy": True}
            yield Line(ARGS, "liger_kernel_config", parts, "stack.loss")
    release, chunks = said.plan.stack.versions.get("trl"), TRL_LOSSES[SFT].since
    asked = release and at_least(release, chunks) and not at_least(release, TRL_HEAD_SINCE)
    if asked and said.get("task") == SFT and said.get("stack.loss") != "fused-linear":
        yield Line(ARGS, LOSSES, NLL, "stack.loss")


def _recompute(said: Said) -> Iterator[Line]:
    kind = said.get("stack.recompute.kind", "none")
    yield Line(ARGS, "gradient_checkpointing", kind != "none", "stack.recompute.kind")
    settings: dict[str, Any] = {}
    if said.get("stack.recompute.reentrant") is not None and kind != "none":
        settings["use_reentrant"] = said.get("stack.recompute.reentrant")
    if every := layers_of(said):
        settings["every_n_layers"] = every
    if settings:
        yield Line(ARGS, "gradient_checkpointing_kwargs", settings, "stack.recompute.reentrant")


def layers_of(said: Said) -> int:
    """Every which layer is recomputed, of `every 2nd layer`; 0 where the policy is another."""
    words = str(said.get("stack.recompute.policy", "")).split()
    number = "".join(char for char in words[1] if char.isdigit()) if words[:1] == ["every"] else ""
    return int(number or 0)


def _adapter(said: Said) -> Iterator[Line]:
    kind = said.get("adapter.kind")
    if kind is None:
        return
    if kind not in LORA:
        raise refuse(said, "adapter.kind", f"one of {', '.join(LORA)} can be said")
    yield Line(ARGS, "use_peft", True, "adapter.kind")
    if kind == LORA[1]:
        yield Line(ARGS, "use_dora", True, "adapter.kind")
    for path, name in (("adapter.r", "lora_r"), *PLAIN):
        if said.get(path) is not None:
            yield Line(ARGS, name, said.get(path), path)
    for path, name in TEXTS:
        if value := said.get(path):
            yield Line(ARGS, name, value if isinstance(value, str) else list(value), path)


def _bits(said: Said) -> Iterator[Line]:
    kind = said.get("quantization.kind")
    if kind in BITS:
        yield Line(ARGS, "load_in_4bit", True, "quantization.kind")
        yield Line(ARGS, "bnb_4bit_quant_type", kind, "quantization.kind")
        yield Line(ARGS, "bnb_4bit_use_double_quant", bool(said.get("quantization.double")), "quantization.double")
    elif kind == "int8":
        yield Line(ARGS, "load_in_8bit", True, "quantization.kind")
    elif kind is not None:
        raise refuse(said, "quantization.kind", f"one of {', '.join((*BITS, 'int8'))} can be said")


def _ddp(said: Said) -> Iterator[Line]:
    for option in DDP_FLAGS:
        path = f"parallel.options.{option}"
        if said.get(path) is not None or option == DDP_FLAGS[0]:
            yield Line(ARGS, f"ddp_{option}", bool(said.get(path)), path)
    if size := said.get("parallel.options.bucket_cap_mb"):
        yield Line(ARGS, "ddp_bucket_cap_mb", size, "parallel.options.bucket_cap_mb")


def dtypes(said: Said) -> Lever:
    """The ways to ask for weights and mixed precision: what they come to depends on the strategy."""
    weights, compute = said.get("precision.weights"), said.get("precision.compute")
    first = [name for name in (weights, compute, "fp32") if name in (*HALF, "fp32")]
    mixed = [compute, ""] if compute in HALF else [""]
    ways = []
    for half in dict.fromkeys(mixed):
        for dtype in dict.fromkeys(first):
            flags = (Line(ARGS, name, name == half, "precision.compute") for name in HALF)
            ways.append((Line(ARGS, "dtype", word(DTYPE_WORDS, dtype), "precision.weights"), *flags))
    return tuple(ways)


def variables(said: Said) -> Iterator[Line]:
    """The environment: the caching allocator's settings, and variables that move memory."""
    conf = said.below("stack.allocator")
    if conf:
        text = ",".join(f"{key}:{value}" for key, value in conf.items())
        yield Line(ENV, "PYTORCH_CUDA_ALLOC_CONF", text, "stack.allocator")
    for name, value in said.below("stack.env").items():
        yield Line(ENV, name, value, f"stack.env.{name}")


def trl(said: Said) -> bool:
    """Whether TRL's trainer runs: its release is named, or only it trains for the plan's task."""
    return "trl" in said.plan.stack.versions or said.get("task") not in ("pretrain", "sft")
