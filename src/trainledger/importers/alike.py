"""Whether two plans are one run: which of their keys differ, and which of those a run cannot do without."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from shlex import quote
from typing import Any

from trainledger.allocator.conf import settings_of
from trainledger.facts.allocator_settings import ALLOCATOR_TEXTS
from trainledger.facts.import_axolotl import AXOLOTL_NEWEST
from trainledger.facts.import_llamafactory import LLAMAFACTORY_NEWEST
from trainledger.facts.import_megatron import OPTIONS
from trainledger.facts.import_swift import SWIFT_NEWEST
from trainledger.facts.import_torchtune import NEWEST as TORCHTUNE_NEWEST
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.importers.emit import leaves, moves
from trainledger.importers.emit_sharding import PARTS
from trainledger.importers.hf_fsdp import TRANSFORMER_WRAP
from trainledger.importers.yaml_text import scalar
from trainledger.model.build import build, model_of
from trainledger.model.counts import storages
from trainledger.plan.schema import Plan, as_mapping

# Keys without which files would be of another run.
NEEDED = (
    "model", "model.*", "task", "trainable", "adapter.kind", "adapter.r", "adapter.targets", "quantization.kind",
    "optimizer.name", "batch.micro_batch", "batch.sequence", "batch.accumulation", "parallel.strategy",
    "parallel.world", "parallel.dp", "parallel.tp", "parallel.cp", "parallel.pp", "parallel.ep", "parallel.schedule",
)  # fmt: skip
# What a key that is left out comes to.
MOOT: dict[str, Any] = {
    "parallel.options.find_unused_parameters": False,
    "adapter.options.autocast_adapter_dtype": True,
    "precision.grad_scaler": False,
    "stack.allocator.expandable_segments": False,
    "parallel.options.auto_wrap_policy": TRANSFORMER_WRAP,
}
MEGATRON_MOOT: dict[str, Any] = {  # arguments that are not given are off
    **{path: False for _, path in OPTIONS},
    "parallel.options.gradient_accumulation_fusion": True,
}
ADAM = {"adamw": "adam"}  # one class in Megatron, which decays weights as AdamW does
# Releases of front ends: defaults go by them, and the ledger by what they come to.
OWN_RELEASES = tuple(row.path for row in (AXOLOTL_NEWEST, LLAMAFACTORY_NEWEST, SWIFT_NEWEST, TORCHTUNE_NEWEST))
CASELESS = tuple(f"parallel.options.{name}" for name in ("backward_prefetch", "auto_wrap_policy", "sharding_strategy"))
UNORDERED = ("adapter.targets", "adapter.train_extra", "optimizer.options.target_modules")
LEFT = ("batch.global", "adapter.trainable_params", "device")


@dataclass(frozen=True, slots=True)
class Difference:
    """A key of a plan, its value, and what files say instead; null where one of both is left out."""

    path: str
    value: Any
    back: Any

    @property
    def shown(self) -> str:
        """The plan's value."""
        return _shown(self.value)

    @property
    def shown_back(self) -> str:
        """The files' value."""
        return _shown(self.back)

    @property
    def why(self) -> str:
        """What the files say in its place."""
        return "its files do not say it" if self.back is None else f"its files come to {self.shown_back}"

    @property
    def change(self) -> str:
        """The option that says it beside the files."""
        return f"--set {quote(f'{self.path}={self.shown}')}"


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value) if not isinstance(value, tuple) else json.dumps(list(value)).replace(" ", "")


def needed(path: str) -> bool:
    """Whether files that say a key otherwise would be another run."""
    return any(fnmatchcase(path, one) for one in NEEDED)


def differences(plan: Plan, back: Plan) -> Iterator[Difference]:
    """Keys in which a plan that was read back differs from the one that it was written from."""
    mine, theirs = normal(plan), normal(back)
    if plan.trainable != back.trainable and _trained(plan) == _trained(back):
        theirs["trainable"] = mine["trainable"]
    if build(plan.keys()) != build(back.keys()):
        own = {f"model.{key}": value for key, value in plan.keys().items() if key != "name"}
        read = {f"model.{key}": value for key, value in back.keys().items() if key != "name"}
        mine, theirs = {**own, **mine}, {**read, **theirs}
    yield from (Difference(path, value, None) for path, value in leaves({"device": as_mapping(plan).get("device", {})}))
    for path in (*mine, *(path for path in theirs if path not in mine)):
        value, other = mine.get(path), theirs.get(path)
        if value != other and not (value is None and path in OWN_RELEASES):
            yield Difference(path, value, other)


def _trained(plan: Plan) -> tuple[str, ...]:
    """The names of the weights that a plan trains, where no adapter is."""
    if plan.adapter is not None or plan.trainable == "none":
        return ()
    return tuple(sorted(name for name, weight in storages(model_of(plan)) if not weight.frozen))


def _alike(path: str, value: Any) -> Any:
    """A value as others that mean the same have it: names in one order, words of FSDP in one case."""
    if path in UNORDERED and isinstance(value, tuple):
        return tuple(sorted(value))
    return value.upper() if path in CASELESS else value


def normal(plan: Plan) -> dict[str, Any]:
    """The keys of a resolved plan that say something, by their dotted names: without the model, null, options that
    move no memory, and what is what a key comes to that is left out."""
    found: dict[str, Any] = {}
    megatron = plan.stack.framework in FRAMEWORKS
    moot = {**MOOT, **MEGATRON_MOOT} if megatron else MOOT
    for path, value in leaves({**as_mapping(plan), "model": {}}):
        name = path.removeprefix("stack.env.")
        if name in ALLOCATOR_TEXTS and name != path:
            settings = settings_of(str(value), name)
            found |= {f"stack.allocator.{key}": scalar(text.lower()) for key, text in settings.items()}
        elif not (value in (None, (), "") or value == moot.get(path) or path.startswith(LEFT)) and moves(path):
            found[path] = _alike(path, value)
    if megatron:
        found["optimizer.name"] = ADAM.get(plan.optimizer.name, plan.optimizer.name)
    for part, section in PARTS:  # said twice where DeepSpeed's own file says it
        if found.get(f"parallel.options.{section}.device") == found.get(part):
            found.pop(f"parallel.options.{section}.device", None)
    if found.get("stack.recompute.kind") == "none":
        found.pop("stack.recompute.reentrant", None)
    return found
