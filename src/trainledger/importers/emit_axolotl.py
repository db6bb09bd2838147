"""Axolotl's YAML of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from trainledger.facts.import_axolotl import (
    ADAPTER_SAME,
    ATTENTIONS,
    BATCH_SAME,
    DEGREES,
    LIGER,
    PADDING,
    SAME,
    TASKS,
)
from trainledger.importers.axolotl_model import LORA_KERNELS
from trainledger.importers.emit import LAUNCH, OWN, Lever, Line, Names, Said, Sheet, refuse, word
from trainledger.importers.emit_front import front_files, front_lines
from trainledger.importers.emit_hf import BITS, HALF, LENGTH
from trainledger.importers.emit_sharding import FSDP, torchrun
from trainledger.importers.hf_adapter import ALL_LINEAR
from trainledger.importers.patterns import expression_of
from trainledger.model.build import model_of
from trainledger.model.counts import storages

FRAMEWORK, SUFFIX = "transformers", ".yaml"
OWN_OPTIMIZERS = ("muon",)
PLUGIN = "axolotl.integrations.liger.LigerPlugin"
RENAMED = {
    **dict((*SAME, *BATCH_SAME, *ADAPTER_SAME)), "model_name_or_path": "base_model", LENGTH: "sequence_len",
    "packing": "sample_packing", "optim": "optimizer", "lora_r": "lora_r", "torch_compile": "torch_compile",
    "gradient_checkpointing": "gradient_checkpointing",
    "gradient_checkpointing_kwargs": "gradient_checkpointing_kwargs", "deepspeed": "deepspeed",
    "fsdp_config": "fsdp_config", "load_in_4bit": "load_in_4bit", "load_in_8bit": "load_in_8bit",
}  # fmt: skip


def sheet(said: Said, names: Names) -> Sheet:
    """The file's lines. Raises InputError for what Axolotl does not train."""
    lines, model = front_lines(said, names, _own, OWN_OPTIMIZERS)
    more = (*_task(said), *_adapter(said), *_rest(said), *_mesh(said))
    return Sheet((*lines, *more, Line(LAUNCH, "torchrun", torchrun(said))), (_dtypes(said),), model)


def _own(line: Line) -> Iterable[tuple[str, object]]:
    if line.key in RENAMED:
        return [(RENAMED[line.key], line.value)]
    if line.key == "attn_implementation":
        switch = word(ATTENTIONS, line.value)
        return [(switch, True)] if switch else [(line.key, line.value)]
    if line.key == "lora_target_modules":
        return [("lora_target_linear", True)] if line.value == ALL_LINEAR else [(line.key, line.value)]
    if line.key == "optim_target_modules":
        whole = line.value in (ALL_LINEAR, [ALL_LINEAR])
        return [(line.key, "all_linear" if whole else line.value)]
    if line.key.startswith("bnb_4bit_"):
        return [(f"bnb_config_kwargs.{line.key}", line.value)]
    return [("fsdp", str(line.value).split())] if line.key == "fsdp" else []


def _task(said: Said) -> Iterator[Line]:
    task = said.get("task")
    if task == "pretrain":
        yield Line(OWN, "pretraining_dataset", [{"path": "DATA"}], "task")
    elif task == "reward":
        yield Line(OWN, "reward_model", True, "task")
    elif (name := word(TASKS, task)) is not None:
        yield Line(OWN, "rl", name, "task")
    elif task != "sft":
        raise refuse(said, "task", f"Axolotl trains pretrain, sft, reward, {', '.join(dict.fromkeys(TASKS.values()))}")


def _adapter(said: Said) -> Iterator[Line]:
    """The adapter's word; its own kernels off, which a plan does not have and Axolotl turns on by itself."""
    kind, options = said.get("adapter.kind"), "adapter.options"
    if kind is None:
        return
    four = said.get("quantization.kind") in BITS
    yield Line(OWN, "adapter", "qlora" if four else "lora", "adapter.kind")
    for kernel in LORA_KERNELS[:-1]:
        yield Line(OWN, kernel, False)
    if (layers := said.get(f"{options}.layers_to_transform")) is not None:
        yield Line(OWN, "peft_layers_to_transform", layers, f"{options}.layers_to_transform")
    if (ranks := said.get(f"{options}.rank_pattern")) is not None:
        yield Line(OWN, "lora_rank_pattern", ranks, f"{options}.rank_pattern")
    if said.get(f"{options}.autocast_adapter_dtype") is False:
        yield Line(OWN, "peft_autocast_adapter_dtype", False, f"{options}.autocast_adapter_dtype")


def _rest(said: Said) -> Iterator[Line]:
    if said.get("optimizer.name") in OWN_OPTIMIZERS:
        yield Line(OWN, "optimizer", said.get("optimizer.name"), "optimizer.name")
    if said.get("stack.attention") == "mem-efficient":
        yield Line(OWN, "xformers_attention", True, "stack.attention")
    if said.whole("batch.sequence") % PADDING.multiple:
        yield Line(OWN, "pad_to_sequence_len", False, "batch.sequence")
    if (norms := said.get("precision.norms")) == "fp32":
        yield Line(OWN, "fp32_norms", norms == "fp32", "precision.norms")
    patterns = said.get("trainable", "all")
    if isinstance(patterns, tuple):
        top = tuple(dict.fromkeys(name.partition(".")[0] for name, _ in storages(model_of(said.plan))))
        yield Line(OWN, "unfrozen_parameters", [expression_of(one, top) for one in patterns], "trainable")
    layers, fused = "liger" in said.get("stack.kernels", ()), said.get("stack.loss") == "fused-linear"
    if layers or fused:
        yield Line(OWN, "plugins", [PLUGIN], "stack.kernels")
        wanted = {"rope": layers, "rms_norm": layers, "swiglu": layers, "fused_linear_cross_entropy": fused}
        for part, keys in LIGER:
            if wanted.get(part):
                yield Line(OWN, keys[0], True, "stack.kernels")


def _mesh(said: Said) -> Iterator[Line]:
    for path, keys in DEGREES:
        if said.whole(path) > 1:
            yield Line(OWN, keys[0], said.whole(path), path)
    strategy, dp, shard = said.get("parallel.strategy"), said.whole("parallel.dp"), said.whole("parallel.shard")
    if strategy == "hsdp":
        yield Line(OWN, "dp_shard_size", shard // said.whole("parallel.cp"), "parallel.shard")
        yield Line(OWN, "dp_replicate_size", dp // (shard // said.whole("parallel.cp") or 1), "parallel.dp")
    elif strategy in FSDP and any(said.whole(path) > 1 for path, _ in DEGREES):
        yield Line(OWN, "dp_shard_size", dp, "parallel.dp")


def _dtypes(said: Said) -> Lever:
    """Axolotl's words for dtypes: half precision with weights alike, `full` without autocast, weights in 32 bits."""
    half = next((one for one in HALF if one == said.get("precision.compute")), "")
    other = {"bf16": "fp16", "fp16": "bf16"}.get(half, "fp16")
    ways: tuple[dict[str, object], ...] = (
        {half or "bf16": bool(half), other: False},
        {"bf16": "full"},
        {"bf16": False, "bfloat16": True},
        {"bf16": False, "float16": True},
        {"bf16": False, "fp16": False},
    )
    return tuple(tuple(Line(OWN, name, value, "precision") for name, value in way.items()) for way in ways)


def files(lines: tuple[Line, ...], names: Names, head: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """The YAML, and the script that starts as many processes as the plan has ranks."""
    launcher = next(line.value for line in lines if line.part == LAUNCH)
    yield from front_files(lines, names, head, f"{launcher} -m axolotl.cli.train {names.main}")
