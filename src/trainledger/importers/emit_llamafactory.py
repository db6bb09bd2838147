"""LLaMA-Factory's YAML of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainledger.facts.export import NODE
from trainledger.facts.import_hf import TRAINER_KEYS
from trainledger.facts.import_llamafactory import (
    ADAPTER_SAME,
    BITS,
    BITS_SAME,
    FLASH,
    LOSSES,
    OFT_SIZES,
    PADDING,
    STAGES,
)
from trainledger.importers.emit import LAUNCH, OWN, Lever, Line, Names, Said, Sheet, refuse, word
from trainledger.importers.emit_front import front_files, front_lines
from trainledger.importers.emit_hf import HALF, LENGTH
from trainledger.importers.hf_adapter import ALL_LINEAR
from trainledger.model.build import model_of
from trainledger.model.chosen import around, chosen
from trainledger.model.program import Block

FRAMEWORK, SUFFIX = "transformers", ".yaml"
OFT = "oft"
OWN_OPTIMIZERS = {"muon": "use_muon", "badam": "use_badam"}
RENAMED = {
    **dict((*ADAPTER_SAME, *BITS_SAME)), "model_name_or_path": "model_name_or_path", "packing": "packing",
    "lora_modules_to_save": "additional_target", "use_liger_kernel": "enable_liger_kernel",
}  # fmt: skip
PASSED = {row.name for row in TRAINER_KEYS}  # the Trainer's own keys stand as they are
LEFT = ("gradient_checkpointing", "gradient_checkpointing_kwargs", "use_liger_kernel", "liger_kernel_config", LENGTH)


def sheet(said: Said, names: Names) -> Sheet:
    """The file's lines. Raises InputError for what LLaMA-Factory does not train."""
    lines, model = front_lines(said, names, _own, (*OWN_OPTIMIZERS, OFT))
    nodes, each = said.nodes(NODE.devices)
    launch = (Line(LAUNCH, "NNODES", nodes), Line(LAUNCH, "NPROC_PER_NODE", each, "parallel.world"))
    return Sheet((*lines, *_task(said), *_rest(said), *launch), (_length(said), _dtypes(said)), model)


def _own(line: Line) -> Iterable[tuple[str, object]]:
    if line.key == "gradient_checkpointing" and not line.value:
        return [("disable_gradient_checkpointing", True)]
    if line.key == "gradient_checkpointing_kwargs":
        return [("use_reentrant_gc", line.value["use_reentrant"])] if "use_reentrant" in line.value else []
    if line.key == "attn_implementation":
        name = word(FLASH, line.value)
        return [("flash_attn", name)] if name else []
    if line.key == "lora_target_modules":
        return [("lora_target", "all" if line.value == ALL_LINEAR else ",".join(line.value))]
    if line.key in ("load_in_4bit", "load_in_8bit"):
        return [("quantization_bit", min(BITS) if "4" in line.key else max(BITS))]
    if line.key in RENAMED:
        return [(RENAMED[line.key], line.value)]
    return [(line.key, line.value)] if line.key in PASSED and line.key not in LEFT else []


def _task(said: Said) -> Iterator[Line]:
    task = said.get("task")
    loss = word(LOSSES, task)
    stage = "dpo" if loss else word(STAGES, task)
    if stage is None:
        trained = (*STAGES.values(), *LOSSES.values())
        raise refuse(said, "task", f"LLaMA-Factory trains {', '.join(dict.fromkeys(trained))}")
    yield Line(OWN, "stage", stage, "task")
    if loss:
        yield Line(OWN, "pref_loss", loss, "task")
    if isinstance(said.get("trainable"), tuple):
        yield from _frozen(said, said.get("trainable"))
    elif said.get("adapter.kind") == OFT:
        yield from _oft(said)
    else:
        kind = "full" if said.get("adapter.kind") is None else "lora"
        yield Line(OWN, "finetuning_type", kind, "adapter.kind")


def _oft(said: Said) -> Iterator[Line]:
    targets = said.get("adapter.targets", ())
    yield Line(OWN, "finetuning_type", OFT, "adapter.kind")
    yield Line(OWN, "oft_target", "all" if targets == ALL_LINEAR else ",".join(targets), "adapter.targets")
    for path, name in OFT_SIZES:
        if size := said.get(path):
            yield Line(OWN, name, size, path)


def _frozen(said: Said, patterns: tuple[str, ...]) -> Iterator[Line]:
    """The last layers (below 0: the first), whole or by module, and what else is trained besides."""
    path, numbered = "trainable", [one for one in patterns if any(_counts(part) for part in one.split("."))]
    whole = model_of(said.plan.model_copy(update={path: "all"}))
    model, extra = chosen(whole, numbered), [one for one in patterns if one not in numbered]
    if not all(any(not one.frozen for one in around(chosen(whole, (pattern,)))) for pattern in extra):
        raise refuse(said, path, "LLaMA-Factory trains the last or the first layers, and modules around them")
    trained = {at: _modules(block) for block in model.blocks for at in block.layers if _modules(block)}
    modules, count = next(iter(trained.values()), ()), len(trained)
    first = min(trained, default=-1) == 0 and count < sum(block.count for block in model.blocks)
    yield Line(OWN, "finetuning_type", "freeze", path)
    yield Line(OWN, "freeze_trainable_layers", -count if first else count, path)
    yield Line(OWN, "freeze_trainable_modules", ",".join(modules), path)
    if extra:
        yield Line(OWN, "freeze_extra_modules", ",".join(one.strip("*") for one in extra), path)


def _counts(part: str) -> bool:
    """Whether a part of a pattern is a layer's number."""
    return part.isdigit() or any(mark in part for mark in "[?") or (part[:-1].isdigit() and part.endswith("*"))


def _modules(block: Block) -> tuple[str, ...]:
    """What of a layer is trained: the names of its modules, or all."""
    found = dict.fromkeys(weight.name.partition(".")[0] for weight in block.weights if not weight.frozen)
    every = {weight.name.partition(".")[0] for weight in block.weights}
    return ("all",) if found.keys() == every else tuple(found)


def _rest(said: Said) -> Iterator[Line]:
    if name := OWN_OPTIMIZERS.get(str(said.get("optimizer.name"))):
        yield Line(OWN, name, True, "optimizer.name")
    if said.get("precision.norms") == "fp32":
        yield Line(OWN, "upcast_layernorm", True, "precision.norms")


def _length(said: Said) -> Lever:
    """The length, which the collators pad; a packed sample has one token more."""
    length = said.whole("batch.sequence")
    found = (length, length - PADDING.beyond)
    return tuple((Line(OWN, "cutoff_len", one, "batch.sequence"),) for one in found if one > 0)


def _dtypes(said: Said) -> Lever:
    """`bf16` and `fp16` autocast over weights in 32 bits; `pure_bf16` trains in bfloat16."""
    half: list[dict[str, object]] = [{name: True} for name in HALF if name == said.get("precision.compute")]
    ways: tuple[dict[str, object], ...] = (
        *half,
        {"bf16": True, "pure_bf16": True},
        {"pure_bf16": True},
        {},
    )
    return tuple(tuple(Line(OWN, name, value, "precision") for name, value in way.items()) for way in ways)


def files(lines: tuple[Line, ...], names: Names, head: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The YAML, and the script that starts as many processes as the plan has ranks."""
    counts = " ".join(f"{line.key}={line.value}" for line in lines if line.part == LAUNCH)
    yield from front_files(lines, names, head, f"FORCE_TORCHRUN=1 {counts} llamafactory-cli train {names.main}")
