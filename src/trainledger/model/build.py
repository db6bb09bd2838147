"""From a model's keys to its program: the family of a `model_type`, its config class's defaults, its blocks."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.model_types import MODEL_TYPES
from trainledger.model.adapted import adapted, method_of
from trainledger.model.keys import Keys
from trainledger.model.looped import looped, loops
from trainledger.model.program import Model
from trainledger.model.quantised import packing_of, quantised
from trainledger.plan.schema import Plan


def model_of(plan: Plan) -> Model:
    """The model that a plan trains: that of its keys, quantised and with an adapter as the plan says.

    Raises InputError as `build` does.
    """
    model, packing = build(plan.keys()), packing_of(plan)
    if loops(plan):
        model = looped(model, plan)
    if packing is not None:
        model = quantised(model, packing, plan.stack.versions.get("transformers", ""))
    if plan.adapter is None:
        return model
    heads = plan.stack.framework == LOW_LEVEL.framework
    return adapted(model, method_of(plan.adapter, plan.stack.versions.get("peft", ""), heads))


def build(keys: Mapping[str, Any]) -> Model:
    """The model of these Hugging Face config keys.

    Raises InputError when `model_type` is missing or not known (with the list of those that are), or when keys are
    missing or impossible.
    """
    kind = keys.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        known = ", ".join(sorted(MODEL_TYPES))
        near = nearest(str(kind), MODEL_TYPES)
        found = f"found {kind!r}" if kind is not None else "missing"
        fix = f"Did you mean {near!r}?" if near else ""
        raise InputError([Problem("model.model_type", found, f"one of {known} is known", fix)])
    row = MODEL_TYPES[kind]
    read = Keys(keys, dict(row.defaults))
    model: Model = import_module(f"trainledger.model.families.{row.module}").build(read)
    read.check()
    return model
