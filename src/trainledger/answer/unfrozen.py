"""The last layers of a model trained, all before them frozen: which keys of a plan say so, and what a plan has."""

from __future__ import annotations

from trainledger.answer.changed import Change
from trainledger.base.problems import InputError, Problem
from trainledger.model.build import WHOLE, model_of
from trainledger.model.chosen import around, chosen
from trainledger.model.program import Model
from trainledger.plan.schema import Plan

PATH = "trainable"


def whole_model(plan: Plan) -> Model:
    """The model of the plan with everything trained. Raises InputError where an adapter freezes it."""
    if plan.adapter is not None:
        fix = "Leave adapter out."
        raise InputError([Problem(PATH, "the plan has an adapter", "layers are unfrozen in a plan without one", fix)])
    return model_of(plan.model_copy(update={PATH: "all"}))


def paths_of(model: Model) -> tuple[str, ...]:
    """The names of a model's layers, in order."""
    named = sorted((layer, block.name) for block in model.blocks for layer in block.layers)
    return tuple(f"{name}.{layer}" for layer, name in named)


def last_layers(plan: Plan, count: int) -> Change:
    """The change that trains the last `count` layers, each whole, and what the plan names besides its layers."""
    model = whole_model(plan)
    paths = paths_of(model)
    return Change(PATH, [*besides(plan, model), *paths[len(paths) - count :]])


def besides(plan: Plan, model: Model) -> tuple[str, ...]:
    """The plan's own patterns that mean something before or behind the layers, and none of these."""
    named = plan.trainable
    if named in WHOLE:
        return ()
    return tuple(one for one in ((named,) if isinstance(named, str) else named) if _around(chosen(model, (one,))))


def _around(marked: Model) -> bool:
    """Whether all that is trained stands before or behind the layers."""
    inner = (weight for block in marked.blocks for weight in block.weights)
    return not all(one.frozen for one in around(marked)) and all(one.frozen for one in inner)


def unfrozen(plan: Plan) -> int:
    """How many of the plan's last layers are trained whole."""
    if plan.adapter is not None or plan.trainable == "none":
        return 0
    model = model_of(plan)
    trained = {
        layer for block in model.blocks if not any(one.frozen for one in block.weights) for layer in block.layers
    }
    layers = sorted((layer for block in model.blocks for layer in block.layers), reverse=True)
    return next((count for count, layer in enumerate(layers) if layer not in trained), len(layers))


def trained_layers(plan: Plan, count: int) -> str:
    """What is trained where the last `count` layers are, in words."""
    model = whole_model(plan)
    paths, more = paths_of(model), besides(plan, model)
    last = paths[len(paths) - count :]
    named = last[0] if count == 1 else f"{last[0]} to {last[-1]}"
    if more:
        return f"trains {named}, each whole, and {', '.join(more)}; all else is frozen"
    return (
        f"trains {named}, each whole; embeddings, last norm and head are frozen, unless the plan's trainable names them"
    )
