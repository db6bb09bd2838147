"""What a recomputed layer's biases take while their gradients are summed, against the real code."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.plans import plan_of
from tests.witness.runs import RECOMPUTE, VERSIONS, traced
from tests.witness.steps import phases
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.session import where_of

PYTHIA = {
    "model_type": "gpt_neox", "hidden_size": 2048, "intermediate_size": 2048, "num_hidden_layers": 2,
    "num_attention_heads": 8, "vocab_size": 1000,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_phases_agree(recompute: str) -> None:
    """Recomputed tensors die as the function that unpacks them returns, before the engine sums over tokens."""
    plan = plan_of(
        PYTHIA,
        batch={"micro_batch": 4, "sequence": 1000},
        stack={"versions": VERSIONS, "recompute": RECOMPUTE[recompute], "allocator": {"expandable_segments": True}},
    )
    found = trace_of(traced(plan, where_of(job_of(plan))), conf=read_conf(plan.stack.allocator))
    assert phases(estimate(plan).ledger.moments) == phases(found.moments)
