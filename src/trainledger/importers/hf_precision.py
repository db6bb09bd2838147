"""The dtypes of a run with Transformers, accelerate or DeepSpeed: what bf16 means under the strategy that runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainledger.facts.deepspeed import STAGES
from trainledger.facts.import_hf_filled import BF16_ADAPTER, CHECKPOINT, KBIT, SHARDS, holds
from trainledger.facts.sharding import FIRST
from trainledger.importers.deepspeed_json import ON
from trainledger.importers.model_source import catalogued
from trainledger.importers.piece import AUTO

if TYPE_CHECKING:
    from trainledger.importers.hf_settle import Joined

LAST = max(STAGES.values())  # the stage under which weights are parts before the engine casts the model
_HALF = ("bf16", "fp16")


def mixed(joined: Joined) -> tuple[str, str]:
    """bf16, fp16 or no, and its place. The Trainer's own words count over accelerate's."""
    for name in ("fp16", "bf16"):
        if joined.fact(f"run.{name}") is True:
            return name, joined.where(f"run.{name}")
    word = str(joined.fact("accelerate.mixed_precision", "no"))
    return (word if word in _HALF else "no"), joined.where("accelerate.mixed_precision")


def precision(joined: Joined) -> None:
    """Say every dtype that follows of the weights that are asked for, of mixed precision and of the strategy."""
    dtype = joined.fact("run.dtype")
    if isinstance(dtype, str) and dtype not in (AUTO, ""):
        where = joined.where("run.dtype")
        joined.say("precision.weights", dtype, where)
    elif dtype == AUTO:
        checkpoint = joined.fact("model.dtype")
        if isinstance(checkpoint, str):
            joined.say("precision.weights", checkpoint, joined.where("model.dtype"))
        else:
            joined.fill(CHECKPOINT, catalogued(joined.value("model")))
    if ON in joined.facts:
        _deepspeed(joined)
    elif mixed(joined)[0] != "no":
        _mixed(joined, *mixed(joined))


def _mixed(joined: Joined, half: str, where: str) -> None:
    strategy = str(joined.value("parallel.strategy") or "none")
    sharded = strategy in ("fsdp1", "fsdp2", "hsdp", "fsdp1-noshard")
    adapter = joined.value("adapter.kind") is not None
    joined.say("precision.compute", half, where)
    joined.say("precision.grad_scaler", half == "fp16", where)
    first = strategy in ("fsdp1", "fsdp1-noshard") or joined.value("parallel.options.fsdp_version") == FIRST
    joined.say("precision.autocast", not sharded or first, where)
    if sharded:
        joined.say("precision.reduce", half, where)
        if not adapter and holds(SHARDS, joined.versions.get("accelerate")):
            joined.piece.filled.pop("precision.weights", None)
            joined.say("precision.weights", SHARDS.value, f"{joined.where('fsdp.on')} ({SHARDS.why})")
    if adapter and joined.value("quantization.kind") is not None and joined.trl:
        if holds(KBIT, joined.versions.get("trl")):
            joined.piece.filled.pop("precision.weights", None)
            joined.fill(KBIT)
        else:
            joined.fill(BF16_ADAPTER)


def _deepspeed(joined: Joined) -> None:
    """DeepSpeed casts the model to its own dtype and keeps float32 copies; nothing is autocast."""
    half, where = "no", joined.where(ON)
    for name in ("fp16", "bf16"):
        auto = f"deepspeed.auto.{name}.enabled"
        if joined.fact(f"deepspeed.{name}") is True:
            half, where = name, joined.where(f"deepspeed.{name}")
        elif auto in joined.facts and (joined.trainer or "accelerate.on" in joined.facts):
            if mixed(joined)[0] == name:
                half, where = name, mixed(joined)[1]
        elif auto in joined.facts and not (joined.trainer or "accelerate.on" in joined.facts):
            allowed = "auto is filled in by the Trainer's arguments, and no file has them"
            fix = "Give the run's arguments too (its script, JSON or YAML), or a value."
            joined.piece.refuse(f"{name}.enabled", "auto", allowed, fix, joined.facts[auto].where)
    if half == "no" and "deepspeed.bf16" not in joined.facts and "deepspeed.fp16" not in joined.facts:
        half, where = mixed(joined)[0], mixed(joined)[1] or where  # accelerate adds the section that is not there
    dtype = half if half in _HALF else "fp32"
    for name in ("weights", "compute"):
        joined.piece.given.pop(f"precision.{name}", None)
        joined.piece.filled.pop(f"precision.{name}", None)
        joined.say(f"precision.{name}", dtype, where)
    joined.say("precision.autocast", False, where)
    joined.say("precision.master", "fp32", where)
    joined.say("precision.grad_scaler", half == "fp16", where)
    whole = joined.fact("deepspeed.stage") != LAST and not joined.said("adapter.dtype")
    if joined.value("adapter.kind") is not None and dtype in _HALF and (whole or joined.trl):
        joined.say("adapter.dtype", dtype, where)
