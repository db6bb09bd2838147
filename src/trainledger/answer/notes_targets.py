"""Notes on an adapter's targets and on what it trains whole: names that fit no module, of which PEFT says nothing."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import nearest
from trainledger.model.looped import ROUTER
from trainledger.model.program import Looped, Model, Op
from trainledger.model.stacked import conversion, meant, parameters
from trainledger.plan.schema import Plan
from trainledger.plan.training import Adapter


def target_notes(plan: Plan, model: Model) -> Iterator[str]:
    """A line for each name of a list that no module of the estimated model has, if others fit."""
    given = plan.adapter
    if given is not None:
        yield from _extra_notes(given, model)
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


def _extra_notes(given: Adapter, model: Model) -> Iterator[str]:
    """A line for each name of what is trained whole that no module's path ends with."""
    paths = tuple(_paths(model)) if given.train_extra else ()
    around = {path[:at] for path in paths for at in (*_ends(path), len(path))}
    for name in given.train_extra:
        if not any(path.endswith(name) for path in around):
            near = nearest(name.rpartition(".")[2], {path.rpartition(".")[2] for path in around})
            meaning = f". Did you mean {near}?" if near else ""
            yield (
                f"adapter.train_extra: {name} fits no module of the model that is estimated, and PEFT says nothing of "
                f"it{meaning}"
            )


def _ends(path: str) -> Iterator[int]:
    """Where the paths of the modules around this one end."""
    return (at for at, mark in enumerate(path) if mark == ".")


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
