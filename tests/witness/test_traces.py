"""Formula and trace of the same plan: every tensor kept for backward, and the largest instant of every phase."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.evidence.trace.families import FAMILIES, PRECISIONS, RECOMPUTE, WORDS, stacks
from tests.plans import plan_of
from tests.witness import saved
from tests.witness.runs import VERSIONS, traced
from tests.witness.steps import phases
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.session import where_of
from trainledger.evidence.trace.record import Record
from trainledger.ledger.rank import Ledger
from trainledger.plan.schema import Plan

BATCH, SEQUENCE = 3, 896  # sizes that no dim of the models has
LAYERS, HIDDEN = 3, 1024


class Both(NamedTuple):
    plan: Plan
    ledger: Ledger
    record: Record


@pytest.fixture(scope="module", params=stacks(), ids="-".join)
def both(request: pytest.FixtureRequest) -> Both:
    family, attention, recompute, precision = request.param
    plan = plan_of(
        FAMILIES[family],
        precision=PRECISIONS[precision],
        batch={"micro_batch": BATCH, "sequence": SEQUENCE, "accumulation": 1},
        stack={
            "versions": VERSIONS,
            "recompute": RECOMPUTE[recompute],
            "attention": WORDS[attention],
            "allocator": {"expandable_segments": True},
        },
    )
    return Both(plan, estimate(plan).ledger, traced(plan, where_of(job_of(plan))))


def test_saved_tensors_agree(both: Both) -> None:
    """Layer by layer, dims, dtype and bytes."""
    ours, theirs = saved.of_ledger(both.ledger, LAYERS), saved.of_record(both.record)
    dtype = both.plan.precision.weights
    width = 2 if dtype == "bf16" else 4
    hidden = (dtype, width * BATCH * SEQUENCE * HIDDEN, (BATCH, SEQUENCE, HIDDEN))
    assert sum(map(Counter.total, theirs.values())) > 2 * LAYERS
    assert not saved.differences(ours, theirs, hidden)


def test_phases_agree(both: Both) -> None:
    """The largest instant of every phase of every step, to the byte, as the allocator gives blocks."""
    found = trace_of(both.record, conf=read_conf(both.plan.stack.allocator))
    assert phases(both.ledger.moments) == phases(found.moments)
