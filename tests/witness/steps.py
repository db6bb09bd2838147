"""Whole steps of a small model, by formula and of the real code, and the settings in which they are compared."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from tests.evidence.trace.families import PRECISIONS
from tests.plans import plan_of
from tests.witness.runs import RECOMPUTE, VERSIONS, traced
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.session import where_of
from trainledger.lines.stream import Moment

Phases = dict[tuple[str, str], int]

SHARDED = {"strategy": "fsdp2", "world": 4, "dp": 4}
REDUCED = {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16", "reduce": "bf16"}
KINDS = {**PRECISIONS, "adapted": {**PRECISIONS["pure"], "gradients": "fp32"}, "sharded": REDUCED}
MIXED = {"weights": "fp32", "autocast": "bf16"}
SETTINGS: dict[str, dict[str, Any]] = {
    "fused, two": {"batch": 2},
    "efficient": {"kernel": "efficient"},
    "autocast": MIXED,
    "eager": {"kernel": "eager"},
    "eager, two": {"kernel": "eager", "batch": 2},
    "autocast, eager, two": {**MIXED, "kernel": "eager", "batch": 2},
    "fp32, eager, two": {"weights": "fp32", "kernel": "eager", "batch": 2},
}


def phases(moments: Iterable[Moment]) -> Phases:
    """The largest instant of every phase of every step."""
    found: Phases = {}
    for moment in moments:
        step, _, name = moment.name.partition(": ")
        if name:
            phase = "forward" if name == "loss" else name.split(" ")[0]
            found[step, phase] = max(found.get((step, phase), 0), moment.allocated)
    return found


def both_phases(
    config: dict[str, Any], recompute: str, attention: str, sequence: int = 160, **sections: Any
) -> tuple[Phases, Phases]:
    """The largest instant of every phase of two steps: by formula, and of the real code."""
    plan = plan_of(
        config,
        batch={"micro_batch": 2, "sequence": sequence, "accumulation": 1},
        stack={
            "versions": {**VERSIONS, "peft": "0.21.2"},
            "recompute": RECOMPUTE[recompute],
            "attention": attention,
            "allocator": {"expandable_segments": True},
        },
        **sections,
    )
    real = trace_of(traced(plan, where_of(job_of(plan))), conf=read_conf(plan.stack.allocator))
    return phases(estimate(plan).ledger.moments), phases(real.moments)
