"""Formula and trace of the same plan: the largest instant of every phase of every step, within a thousandth."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.evidence.trace.families import FAMILIES, PRECISIONS, RECOMPUTE, WORDS, stacks
from tests.plans import plan_of
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.plan_run import run_plan
from trainledger.evidence.trace.live.session import where_of
from trainledger.lines.stream import Moment

CLOSE = 1e-3


def phases(moments: Iterable[Moment]) -> dict[tuple[str, str], int]:
    found: dict[tuple[str, str], int] = {}
    for moment in moments:
        step, _, name = moment.name.partition(": ")
        if name:
            phase = "forward" if name == "loss" else name.split(" ")[0]
            found[step, phase] = max(found.get((step, phase), 0), moment.allocated)
    return found


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "attention", "recompute", "precision"), stacks())
def test_formula_and_trace_agree(family: str, attention: str, recompute: str, precision: str) -> None:
    plan = plan_of(
        FAMILIES[family],
        precision=PRECISIONS[precision],
        batch={"micro_batch": 2, "sequence": 1024, "accumulation": 1},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0"},
            "recompute": RECOMPUTE[recompute],
            "attention": WORDS[attention],
            "allocator": {"expandable_segments": True},
        },
    )
    conf = read_conf(plan.stack.allocator)
    ours = phases(estimate(plan).ledger.moments)
    real = phases(trace_of(run_plan(plan, where_of(job_of(plan))), conf=conf).moments)
    assert set(ours) == set(real)
    far = {name: ours[name] / size - 1 for name, size in real.items() if abs(ours[name] / size - 1) > CLOSE}
    assert not far
