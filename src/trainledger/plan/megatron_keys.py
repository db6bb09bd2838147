"""A Hugging Face model's keys as Megatron-Core's: what its provider makes of them, each change with its source."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.base.problems import Problem, nearest
from trainledger.base.sources import Source
from trainledger.facts.megatron import FAMILY, FRAMEWORKS, WRAPPED
from trainledger.facts.megatron_keys import PADDING, TYPES, WIDENING, MegatronType
from trainledger.facts.model_types import MODEL_TYPES
from trainledger.plan.schema import Plan

SHARED = "shared_expert_intermediate_size"


@dataclass(frozen=True, slots=True)
class Turned:
    """A key that Megatron's model gets: its value, why, and the source that says so."""

    key: str
    value: object
    why: str
    source: Source


def megatron_keys(plan: Plan) -> tuple[dict[str, Any], tuple[Turned, ...]]:
    """Megatron's keys of a plan's model, and what of them the plan does not say: nothing where another framework runs
    it, or where Megatron-Core cannot build it (`type_problems`)."""
    if (
        plan.stack.framework not in (*FRAMEWORKS, WRAPPED)
        or not isinstance(plan.model, dict)
        or tuple(type_problems(plan))
    ):
        return {}, ()
    kind, made, found = str(plan.model["model_type"]), dict(plan.model), tuple[Turned, ...]()
    if kind != FAMILY:
        made, found = turned(plan, TYPES[kind])
    row = MODEL_TYPES[FAMILY]
    left = (one for one in row.defaults if one[0] not in made)
    filled = tuple(Turned(key, value, "an argument's default", row.source) for key, value in left)
    return {**made, **{one.key: one.value for one in filled}}, (*found, *filled)


def type_problems(plan: Plan) -> Iterator[Problem]:
    """Why Megatron-Core cannot build the plan's model: its type has no row, or keys that the row has no place for."""
    keys = plan.keys()
    kind = keys.get("model_type")
    row = TYPES.get(str(kind))
    if kind == FAMILY:
        return
    if row is None:
        near = nearest(str(kind), (FAMILY, *TYPES))
        found = f"found {kind!r} with {plan.stack.framework}" if kind is not None else "missing"
        yield Problem(
            "model.model_type", found, f"{FAMILY}, and of Hugging Face's {', '.join(TYPES)} can be estimated so far",
            f"Did you mean {near}?" if near else "",
        )  # fmt: skip
        return
    for key, allowed in row.alike:
        value = keys.get(key)
        if value is not None and value not in allowed:
            need = f"Megatron-Core builds {kind} with {' or '.join(str(one) for one in allowed)}"
            yield Problem(f"model.{key}", f"found {value!r} with {plan.stack.framework}", need)


def turned(plan: Plan, row: MegatronType) -> tuple[dict[str, Any], tuple[Turned, ...]]:
    """Megatron's keys of a plan's model, and what of them its own keys do not say.

    Values stay as they were given, whatever they are: the model's family checks them.
    """
    given = {**dict(MODEL_TYPES[row.name].defaults), **plan.keys()}
    made = {new: given[old] for old, new in row.renamed if given.get(old) is not None}
    settings = [Turned(key, value, f"{row.name} under Megatron-Core", row.source) for key, value in row.settings]
    found = [*settings, *_widths(made), *_padded(plan, made)]
    latent = {"q_lora_rank": None} if "q_lora_rank" in given and given["q_lora_rank"] is None else {}
    made = {"model_type": FAMILY, **made, **latent, **{one.key: one.value for one in found}}
    return made, tuple(found)


def _widths(made: dict[str, Any]) -> Iterator[Turned]:
    """The width of shared experts together, and of a feed-forward that has none of its own."""
    shared, width = made.pop("n_shared_experts", None), made.get("moe_intermediate_size")
    if shared:
        both = isinstance(shared, int) and isinstance(width, int)  # the model's family refuses what is no count
        why, source = "n_shared_experts x moe_intermediate_size", TYPES["deepseek_v3"].source
        yield Turned(SHARED, shared * width if both else shared, why, source)
    hidden = made.get("hidden_size")
    if made.get("intermediate_size") is None and isinstance(hidden, int):
        why = f"{WIDENING.times} x hidden_size where left out"
        yield Turned("intermediate_size", hidden * WIDENING.times, why, WIDENING.source)


def _padded(plan: Plan, made: Mapping[str, Any]) -> Iterator[Turned]:
    """The vocabulary that the framework pads; one that needs no padding stays."""
    size, each = made.get("vocab_size"), plan.stack.options.get(PADDING.option, PADDING.multiple)
    if plan.stack.framework not in PADDING.frameworks or not _counts(size, each):
        return
    unit = each * plan.parallel.tp
    if size % unit:
        why = f"{size:,} padded to a multiple of {each} x tp {plan.parallel.tp}"
        yield Turned("vocab_size", size + unit - size % unit, why, PADDING.source)


def _counts(*values: Any) -> bool:
    return all(isinstance(one, int) and not isinstance(one, bool) and one > 0 for one in values)
