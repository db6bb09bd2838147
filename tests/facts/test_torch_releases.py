"""What older releases of PyTorch keep: softmax's inputs, a step's gradients, every kernel of the library."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.importers.records import Record, read_records
from trainledger.ledger.run import run_of
from trainledger.plan.schema import Plan

RECORDS = Path(__file__).parents[1] / "data" / "records_transformers_2022.jsonl"
HEADS, BATCH, SEQUENCE, LAYERS = 4, 2, 256, LLAMA["num_hidden_layers"]


def _plan(torch: str, attention: str = "eager", **stack: Any) -> Plan:
    return plan_of(
        {**LLAMA, "num_attention_heads": HEADS},
        precision={"weights": "fp32", "compute": "fp32", "gradients": "fp32"},
        batch={"micro_batch": BATCH, "sequence": SEQUENCE},
        stack={"versions": {"torch": torch, "transformers": "4.45.2"}, "attention": attention, **stack},
    )


def _kept(torch: str) -> int:
    plan = _plan(torch, options={"zero_grad_set_to_none": True})
    return next(one.allocated for one in estimate(plan).ledger.moments if one.name == "step 2: backward of the loss")


def test_softmax_saved_its_input_too() -> None:
    """fp32 scores of every layer, and the logits, which log_softmax reads as they came and shifted."""
    scores = LAYERS * BATCH * HEADS * SEQUENCE * SEQUENCE * 4
    more = _kept("1.10.2") - _kept("1.11.0")
    assert scores < more <= scores + 2 * BATCH * SEQUENCE * LLAMA["vocab_size"] * 4


def test_a_release_that_is_not_known_is_the_newest() -> None:
    assert _kept("1.11.0") == _kept("2.13.0")


@pytest.mark.parametrize(
    ("torch", "said", "framework", "kept"),
    [
        ("1.13.1", None, "transformers", True),
        ("2.0.0", None, "transformers", False),
        ("1.13.1", True, "transformers", False),
        ("2.0.0", False, "transformers", True),
        ("1.13.1", None, "litgpt", False),
    ],
)
def test_who_sets_gradients_to_zero(torch: str, said: bool | None, framework: str, kept: bool) -> None:
    options = {} if said is None else {"zero_grad_set_to_none": said}
    assert run_of(_plan(torch, options=options, framework=framework), "sm80").keeps_gradients is kept


def _records() -> Iterator[Any]:
    for one in read_records(str(RECORDS)):
        assert isinstance(one, Record)
        yield pytest.param(one, id=one.id)


@pytest.mark.parametrize("one", list(_records()))
def test_published_runs_of_2022(one: Record) -> None:
    """Their document names no release: those of its day come with it. nvidia-smi, within 4 %."""
    plan = one.draft().plan
    assert plan.stack.versions["torch"] == "1.10.1"
    assert estimate(plan).device.expected == pytest.approx(one.measured.size, rel=0.04)
