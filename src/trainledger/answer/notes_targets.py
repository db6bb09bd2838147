"""Notes on an adapter's targets: names that fit no module, about which PEFT says nothing where others fit."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import nearest
from trainledger.model.looped import ROUTER
from trainledger.model.program import Looped, Model, Op
from trainledger.model.stacked import conversion, meant, parameters
from trainledger.plan.schema import Plan


def target_notes(plan: Plan, model: Model) -> Iterator[str]:
    """A line for each name of a list that no module of the estimated model has, if others fit."""
    given = plan.adapter
    if given is None or not isinstance(given.targets, list | tuple):
        return
    row = conversion(given, str(plan.keys().get("model_type")), plan.stack.versions)
    paths, before = tuple(_paths(model)), {old for old, _ in row.names} if row else set[str]()
    known = {path.rpartition(".")[2] for path in paths} | before
    for name in given.targets:
        last = name.rpartition(".")[2]
        if last in before or any(meant(path, (name,)) for path in paths):
            continue
        near = nearest(last, known)
        meaning = f". Did you mean {near}?" if near else ""
        yield (
            f"adapter.targets: {name} fits no module of the model that is estimated, and PEFT says nothing of it where "
            f"another name fits{meaning}"
        )


def _paths(model: Model) -> Iterator[str]:
    """Paths of the model's modules, and of stacked experts' parameters."""
    yield from (op.name for op in (*model.prologue, *model.head.ops))
    for block in model.blocks:
        for layer in block.layers:
            for op in block.ops:
                yield from (f"{block.name}.{layer}.{name}" for name in _names(op))
    yield from (path for path, _ in parameters(model))


def _names(op: Op) -> Iterator[str]:
    yield op.name
    if isinstance(op.spec, Looped):
        yield from (weight.name.removesuffix(".weight") for weight in op.spec.weights)
        yield f"{op.name.rpartition('.')[0]}.{ROUTER}"
