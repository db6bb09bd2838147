"""From a model's keys to its program: the family of a `model_type`, its config class's defaults, its blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.dropout import OPTION, turns_off
from trainledger.facts.dtypes import DTYPES, FP32
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.facts.model_types import MODEL_TYPES
from trainledger.facts.peft import UPCAST
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.facts.preferences import REWARDED
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtune import NAME as TORCHTUNE
from trainledger.model import litgpt, pithtrain, torchtitan, torchtune
from trainledger.model.adapted import adapted, method_of
from trainledger.model.chosen import chosen
from trainledger.model.evaluated import undropped
from trainledger.model.keys import Keys
from trainledger.model.looped import looped, loops
from trainledger.model.megatron_own import with_own_latents
from trainledger.model.program import Model
from trainledger.model.prompts import PREFIX_KIND, PROMPT_KINDS, prefixed, prompted, with_tokens
from trainledger.model.quantised import packing_of, quantised
from trainledger.model.released import as_run
from trainledger.model.stacked import converted
from trainledger.model.valued import valued
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan

WHOLE = ("all", "none")  # words of what is trained that name no modules
OWN: Mapping[str, Callable[[Plan], Model]] = {"litgpt": litgpt.model_of}  # frameworks with model code of their own
# likewise, whose program is written from that of the Transformers class
WRITTEN: Mapping[str, Callable[[Model, Plan], Model]] = {
    TORCHTUNE: torchtune.written,
    TORCHTITAN: torchtitan.written,
    PITHTRAIN: pithtrain.written,
}


def model_of(plan: Plan) -> Model:
    """The model that a plan trains: that of its keys, quantised and with an adapter as the plan says; where it trains
    some modules by name, the rest is frozen.

    Raises InputError as `build` does.
    """
    model, named = _model_of(plan), plan.trainable
    model = undropped(model) if still(plan) else model
    if plan.adapter is not None or named in WHOLE:
        return model
    return chosen(model, (named,) if isinstance(named, str) else named, FP32 if upcasts(plan) else None)


def still(plan: Plan) -> bool:
    """Whether the plan's trainer turns dropout off: as its options say, or as it does by default."""
    said, stack = plan.stack.options.get(OPTION), plan.stack
    return bool(said) if said is not None else turns_off(plan.task, stack.framework, stack.versions)


def upcasts(plan: Plan) -> bool:
    """Whether what the plan trains by name is kept in fp32, whatever its weights are."""
    return bool(plan.stack.options.get(UPCAST.option)) and not deepspeed_of(plan)


def _model_of(plan: Plan) -> Model:
    if plan.stack.framework in WRITTEN:
        return WRITTEN[plan.stack.framework](build(plan.keys()), plan)
    own = OWN.get(plan.stack.framework)
    if own is not None:
        return own(plan)
    release = plan.stack.versions.get("transformers", "")
    model, packing = as_run(build(plan.keys()), plan), packing_of(plan)
    if plan.stack.framework in FRAMEWORKS:
        return with_own_latents(model, plan)
    model = valued(model) if plan.task == REWARDED else model
    if loops(plan, model):
        model = looped(model, plan)
    if packing is not None:
        model = quantised(model, packing, release)
    given = plan.adapter
    if given is None:
        return model
    if given.kind in PROMPT_KINDS:
        return prompted(model, given.kind, DTYPES[given.dtype], given.options)
    if given.kind == PREFIX_KIND:
        return prefixed(model, DTYPES[given.dtype], given.options)
    if given.kind == "trainable-tokens":
        return with_tokens(model, DTYPES[given.dtype], given.options)
    heads = plan.stack.framework == LOW_LEVEL.framework
    given = converted(given, model, str(plan.keys().get("model_type")), plan.stack.versions)
    model = adapted(model, method_of(given, plan.stack.versions, heads))
    rows = given.options.get("trainable_token_indices")
    return with_tokens(model, DTYPES[given.dtype], {"token_indices": rows}) if rows else model


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
    model, read = _built(kind, keys)
    read.check()
    return model


def asked(keys: Mapping[str, Any]) -> frozenset[str]:
    """The names of keys that the family of these keys looks for; none where their `model_type` is not known."""
    kind = keys.get("model_type")
    if not isinstance(kind, str) or kind not in MODEL_TYPES:
        return frozenset()
    return frozenset(_built(kind, keys)[1].asked)


def _built(kind: str, keys: Mapping[str, Any]) -> tuple[Model, Keys]:
    row = MODEL_TYPES[kind]
    read = Keys(keys, dict(row.defaults))
    model: Model = import_module(f"trainledger.model.families.{row.module}").build(read)
    return model, read
