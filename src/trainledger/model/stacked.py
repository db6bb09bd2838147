"""Adapters of parameters: stacked experts and routers, named by themselves or by the linear layers that they were.

Sources: peft/tuners/tuners_utils.py (_inject_parameters), peft/tuners/lora/layer.py (ParamWrapper), peft/utils/
transformers_weight_conversion.py (0.19.1 to 0.21.2).
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import DType
from trainledger.facts.peft_experts import DEFAULT_SCALE, FINDERS, LISTS, TEXTS, Renamed, renamed
from trainledger.facts.quantization import STACKED_EXPERTS
from trainledger.facts.versions import at_least
from trainledger.model.program import ClampedExperts, Experts, Fold, GroupRouter, Linear, Model, Op, Router, Weight
from trainledger.plan.training import Adapter

ALL_LINEAR = "all-linear"
PARAMETERS = "target_parameters"
STACKED = len(("experts", "out", "in"))  # dims of a parameter that has a matrix for each expert


class Scaled(NamedTuple):
    """The rank of a parameter's adapter (0: it has none), and what its product is scaled by before the rank divides."""

    rank: int = 0
    alpha: float = 0.0


def parameters_of(op: Op) -> tuple[Weight, ...]:
    """Parameters of an operation's module that are no linear layer's, in the module's order."""
    match op.spec:
        case Experts(up=None) as spec:
            return (spec.gate_up, spec.down)
        case ClampedExperts() as spec:
            return (spec.gate_up, spec.down)
        case Router() | GroupRouter() as spec:
            return (spec.weight,)
        case _:
            return ()


def converted(given: Adapter, model: Model, kind: str, versions: Mapping[str, str]) -> Adapter:
    """The adapter with its targets as PEFT reads them for this type of model: names of experts and of their router
    become names of parameters; where one parameter is adapted for two names, with twice the rank."""
    row = conversion(given, kind, versions)
    if row is None:
        return given
    names = _names(given, model, row, versions)
    if not names:
        return given
    new = {name: _new(name, row) for name in names}
    parameters = {one for one in new.values() if one}
    options = {**given.options, PARAMETERS: sorted({*(given.options.get(PARAMETERS) or ()), *parameters})}
    alpha = given.options.get("lora_alpha") or DEFAULT_SCALE
    for name, once in (("rank_pattern", given.r or 0), ("alpha_pattern", alpha)):
        of = {rf".*\.{re.escape(one)}": len(parts) * once for one, parts in row.together if one in parameters}
        options[name] = {**(given.options.get(name) or {}), **of}
    return given.model_copy(update={"targets": tuple(name for name in names if not new[name]), "options": options})


def conversion(given: Adapter, kind: str, versions: Mapping[str, str]) -> Renamed | None:
    """The names that this run converts; None for none."""
    if given.kind not in ("lora", "dora") or not at_least(versions.get("transformers"), STACKED_EXPERTS.since):
        return None
    since = TEXTS if isinstance(given.targets, str) and not found(given, versions) else LISTS
    return renamed(kind) if at_least(versions.get("peft"), since.release) else None


def apart(given: Adapter, model: Model, kind: str, versions: Mapping[str, str]) -> tuple[str, tuple[str, ...]] | None:
    """A name that PEFT refuses to convert alone, and those that it has to come with; None where there is none."""
    row = conversion(given, kind, versions)
    if row is None:
        return None
    leaves = {name.rpartition(".")[2] for name in _names(given, model, row, versions)}
    for _, parts in row.together:
        there = [part for part in parts if part in leaves]
        if there and len(there) < len(parts):
            return there[0], parts
    return None


def found(given: Adapter, versions: Mapping[str, str]) -> bool:
    """Whether a front end looks for all linear layers itself."""
    return given.targets == ALL_LINEAR and any(one.package in versions for one in FINDERS)


def _names(given: Adapter, model: Model, row: Renamed, versions: Mapping[str, str]) -> tuple[str, ...]:
    """The names of the targets."""
    if found(given, versions):
        return _linear(model)
    return _resolved(given.targets, model, row) if isinstance(given.targets, str) else tuple(given.targets or ())


def _linear(model: Model) -> tuple[str, ...]:
    """The last parts of the names of the layers' linear layers."""
    paths = {path for path, op in _modules(model) if isinstance(op.spec, Linear)}
    return tuple(sorted({path.rpartition(".")[2] for path in paths}))


def _new(name: str, row: Renamed) -> str:
    """The parameter that a target's name means now; empty for another module's."""
    return next((new for old, new in row.names if name == old or name.endswith(f".{old}")), "")


def _resolved(targets: str | None, model: Model, row: Renamed) -> tuple[str, ...]:
    """The last parts of the names that a text means: `all-linear`, or a pattern of whole paths."""
    old = tuple(name for name, _ in row.names)
    if targets == ALL_LINEAR:
        return tuple(sorted({*_linear(model), *old}))
    pattern = re.compile(targets or "")
    keys = {path for path, _ in _modules(model)} | {one for one, _ in parameters(model)}
    matched = {key.rpartition(".")[2] for key in keys if pattern.fullmatch(key)}
    for name, new in row.names:
        inside = {path.rpartition(".")[0] for path, _ in parameters(model) if path.endswith(f".{new}")}
        if any(pattern.fullmatch(f"{one}.{name}") for one in inside):
            matched.add(name)
    return tuple(sorted(matched))


def _modules(model: Model) -> Iterable[tuple[str, Op]]:
    """Paths of the layers' modules."""
    for block in model.blocks:
        for layer in block.layers:
            yield from ((f"{block.name}.{layer}.{op.name}", op) for op in block.ops)


def parameters(model: Model) -> Iterable[tuple[str, Weight]]:
    """Paths of the layers' parameters that are no linear layer's."""
    for block in model.blocks:
        for layer in block.layers:
            for op in block.ops:
                yield from ((f"{block.name}.{layer}.{one.name}", one) for one in parameters_of(op))


def named(path: str, names: str | Sequence[str]) -> bool:
    """Whether a module's path is one of the names or ends with one; a text is a pattern of the whole path."""
    return re.fullmatch(names, path) is not None if isinstance(names, str) else meant(path, names)


def meant(path: str, names: Iterable[str]) -> bool:
    """Whether a path is one of the names or ends with one."""
    return any(path == name or path.endswith(f".{name}") for name in names)


def folded(op: Op, chosen: Sequence[Scaled], dtype: DType, rooted: bool) -> Op:
    """The operation with those of its parameters adapted that have a rank. Wrappers of one module are nested: that of
    its last parameter is the outermost. `rooted`: scales are divided by the root of the rank."""
    adapted = [(one, by) for one, by in zip(parameters_of(op), chosen, strict=True) if by.rank]
    made: list[Fold] = []
    for depth, (weight, by) in enumerate(reversed(adapted)):
        path = ".".join((op.name, *["base_layer"] * depth))
        outer, inner = weight.dims[-2:]
        turned = isinstance(op.spec, ClampedExperts)
        outer, inner = (inner, outer) if turned else (outer, inner)
        rows = Axis(Dim.RANK, by.rank * (weight.dims[0].size if len(weight.dims) == STACKED else 1))
        down = Weight(f"{path}.lora_A.default.weight", (rows, inner), dtype=dtype, tuned=True)
        up = Weight(f"{path}.lora_B.default.weight", (outer, rows), dtype=dtype, tuned=True)
        made.append(Fold(weight, down, up, turned, by.alpha == (math.sqrt(by.rank) if rooted else by.rank)))
    return replace(op, folds=tuple(made)) if made else op
