"""Whole runs under optimizers other than AdamW: the largest instant of every phase, against the real code."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.plans import LLAMA, plan_of
from tests.witness.runs import VERSIONS, traced
from tests.witness.steps import phases
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.session import where_of

# sizes at which what a step makes of two neighbours is more than backward's largest instant
MODEL = {**LLAMA, "hidden_size": 512, "intermediate_size": 1280, "vocab_size": 4096}
RUNS = [
    ("adagrad", "foreach"), ("adagrad", "loop"), ("adamw", "loop"), ("rmsprop", "loop"), ("sgd-momentum", "foreach"),
]  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "implementation"), RUNS)
def test_phases_agree(name: str, implementation: str) -> None:
    """To the byte: states that are there from building on, and neighbours in the order of the model's parameters."""
    plan = plan_of(
        MODEL,
        optimizer={"name": name, "implementation": implementation},
        batch={"micro_batch": 1, "sequence": 64},
        stack={"versions": VERSIONS, "allocator": {"expandable_segments": True}},
    )
    found = trace_of(traced(plan, where_of(job_of(plan))), conf=read_conf(plan.stack.allocator))
    assert phases(estimate(plan).ledger.moments) == phases(found.moments)
