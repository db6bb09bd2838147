"""Weights of Megatron-Core as they are sent to a rollout engine: one by one, each whole on every rank.

A rank of another pipeline stage receives its part first; then every rank's part lies there, and all of them joined. Of
a gated feed-forward the two halves are joined apart, then with each other. Experts come one by one from every rank that
has others. Source: the row `EXPORTED` in facts/phases.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.ledger.layout import weights_of
from trainledger.ledger.mega_run import parts_of
from trainledger.lines.local import local_model
from trainledger.lines.parts import Parts
from trainledger.model.build import model_of
from trainledger.model.operations_megatron import Activated
from trainledger.model.operations_megatron_moe import GroupedExperts
from trainledger.model.program import Model, Role, Weight
from trainledger.plan.schema import Plan

FIRST = "linear_fc1"  # of a feed-forward: both halves, where it is gated
JOINED = ("parts", "joined")
HALVES = (*JOINED, "both halves")


def exported(policy: Plan) -> Iterator[tuple[str, int]]:
    """By weight of the whole model, how many elements are there at most while it is sent."""
    parts, model = parts_of(policy), model_of(policy)
    gated = _gated(model)
    rows = zip(weights_of(model), weights_of(local_model(model, parts)), strict=True)
    for (prefix, whole, _), (_, own, _) in rows:
        halves = gated and FIRST in whole.name
        yield f"{prefix}{whole.name}", _most(whole, own, parts, (halves, policy.parallel.pp > 1))


def _gated(model: Model) -> bool:
    specs = [op.spec for block in model.blocks for op in block.ops]
    return any(one.gated for one in specs if isinstance(one, Activated | GroupedExperts))


def _most(whole: Weight, own: Weight, parts: Parts, how: tuple[bool, bool]) -> int:
    """Elements of a weight and of this rank's part; `how`: whether two halves are joined, and whether another stage may
    have it."""
    halves, staged = how
    expert = whole.role is Role.EXPERT
    each, part = (one.elements // (one.dims[0].size if expert else 1) for one in (whole, own))
    joined = len(HALVES if halves else JOINED) * each if part != each else 0
    others = parts.ep * part if expert and parts.ep > 1 else 0
    return (part if staged else 0) + others + joined
