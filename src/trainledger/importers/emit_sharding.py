"""What shards, as DeepSpeed's configuration or FSDP's settings, and how many ranks a launcher starts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainledger.facts.export import NODE
from trainledger.facts.import_deepspeed import DEEPSPEED_KEYS
from trainledger.facts.import_hf_optim import DEEPSPEED_OPTIMS
from trainledger.facts.sharding import FIRST, SECOND
from trainledger.importers.deepspeed_json import CLIP, MICRO, STAGES, STEPS, TOTAL, ZERO
from trainledger.importers.emit import ARGS, OWN, Line, Said, nested, straight
from trainledger.importers.hf_fsdp import (
    FULL,
    GRADIENTS,
    HYBRID,
    HYBRID_GRADIENTS,
    NONE,
    OPTIONS,
    SAVING,
    WRAPPING,
)
from trainledger.importers.piece import AUTO

FSDP = {"fsdp1": FIRST, "fsdp2": SECOND, "fsdp1-noshard": FIRST}
HYBRIDS = "hsdp"
PARTS = (("offload.optimizer", "offload_optimizer"), ("offload.params", "offload_param"))
MESH = (("parallel.tp", "tp_size"), ("parallel.cp", "cp_size"))


def stage(said: Said) -> int | None:
    """DeepSpeed's stage; None where another strategy runs."""
    strategy = said.get("parallel.strategy")
    if strategy == STAGES[0] and said.get("parallel.options.stage") is None:
        return None
    return next((number for number, name in STAGES.items() if name == strategy), None)


def zero(said: Said) -> dict[str, Any]:
    """A DeepSpeed configuration; what the Trainer's arguments say is left to them."""
    found = [(line.key, line.value) for line in straight(DEEPSPEED_KEYS, said, OWN)]
    for path, section in PARTS:
        if place := said.get(path):
            found.append((f"{ZERO}.{section}.device", place))
    if (kind := _optimizer(said)) is not None:
        found += [("optimizer.type", kind), *((f"optimizer.params.{name}", AUTO) for name in ("lr", "weight_decay"))]
    autos = ("bf16.enabled", "fp16.enabled", CLIP, MICRO, STEPS, TOTAL)
    return nested([(f"{ZERO}.stage", stage(said)), *found, *((name, AUTO) for name in autos)])


def _optimizer(said: Said) -> str | None:
    """DeepSpeed's own optimizer, where its kernel runs the step; else the Trainer's runs."""
    kind, how = said.get("optimizer.name"), said.get("optimizer.implementation", "")
    if how != DEEPSPEED_OPTIMS["adamw"].implementation:
        return None
    rows = [row for row in DEEPSPEED_OPTIMS.values() if (row.optimizer, row.implementation) == (kind, how)]
    return {"adam": "Adam", "adamw": "AdamW"}.get(rows[-1].name, rows[-1].name) if rows else None


def sharded(said: Said) -> bool:
    """Whether FSDP runs."""
    return said.get("parallel.strategy") in (*FSDP, HYBRIDS)


def fsdp(said: Said) -> dict[str, Any]:
    """FSDP's settings by accelerate's names, without their `fsdp_`."""
    strategy = said.get("parallel.strategy")
    version = FSDP.get(strategy) or said.whole("parallel.options.fsdp_version", SECOND)
    after = said.get("parallel.reshard_after_forward", True)
    found: dict[str, Any] = {"version": version}
    if strategy == HYBRIDS:
        found["sharding_strategy"] = HYBRID if after else HYBRID_GRADIENTS
    elif version == FIRST:
        found["sharding_strategy"] = NONE if strategy == "fsdp1-noshard" else FULL if after else GRADIENTS
    if version == SECOND:
        found["reshard_after_forward"] = after
    if said.get("offload.params"):
        found["offload_params"] = True
    for name in (*OPTIONS, *WRAPPING, *SAVING):
        if (value := said.get(f"parallel.options.{name}")) is not None:
            found[name] = value
    return found


def mesh(said: Said) -> dict[str, int]:
    """A mesh's sizes by accelerate's names; empty where data-parallel ranks are all there are."""
    found = {name: said.whole(path) for path, name in MESH if said.whole(path) > 1}
    if "cp_size" in found and said.get("parallel.options.cp_comm_type") == "ulysses":
        found["sp_size"] = found.pop("cp_size")
    dp, shard = said.whole("parallel.dp"), said.whole("parallel.shard")
    if said.get("parallel.strategy") == HYBRIDS:
        return {"dp_replicate_size": dp // shard or 1, "dp_shard_size": shard, **found}
    return {"dp_shard_size": dp, **found} if found and sharded(said) else found


def arguments(said: Said) -> Iterator[Line]:
    """What shards, among the Trainer's own arguments."""
    path = "parallel.strategy"
    if stage(said) is not None:
        yield Line(ARGS, "deepspeed", zero(said), path)
    elif sharded(said):
        settings = fsdp(said)
        words = str(settings.get("sharding_strategy", FULL)).lower()
        yield Line(ARGS, "fsdp", f"{words} auto_wrap", path)
        yield Line(ARGS, "fsdp_config", settings, path)
    if sizes := mesh(said):
        yield Line(ARGS, "parallelism_config", sizes, "parallel")


def torchrun(said: Said) -> str:
    """torchrun with as many processes as the plan has ranks."""
    nodes, each = said.nodes(NODE.devices)
    return f"torchrun --nnodes {nodes} --nproc_per_node {each}" if nodes > 1 else f"torchrun --nproc_per_node {each}"
