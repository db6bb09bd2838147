"""Of how many tokens of a sequence the head makes logits, and what a pass that trains nothing leaves out."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.facts.preference_row import Cut, Picked
from trainledger.ledger.scoring import scoring_of
from trainledger.plan.schema import Plan


def sampled(trl: str = "1.13.0", transformers: str = "5.24.0", counted: int | None = 48, **stack: Any) -> Plan:
    versions = {"torch": "2.13.0", "accelerate": "1.15.0", "trl": trl, "transformers": transformers}
    return plan_of(
        task="grpo",
        roles={"policy": {}},
        batch={"micro_batch": 2, "sequence": 96, "loss_tokens": counted},
        stack={"versions": versions, "loss": "full-fp32", **stack},
    )


@pytest.mark.parametrize(
    ("plan", "kept"),
    [
        (sampled(), 49),  # and the one before the first that counts
        (sampled(counted=96), 96),
        (sampled(counted=None), 0),
        (sampled("0.15.2", "4.49.0"), 49),
        (sampled("0.15.2", "4.48.1"), 0),  # its models take no such argument
    ],
)
def test_the_head_makes_logits_of_completions(plan: Plan, kept: int) -> None:
    assert scoring_of(plan).kept == kept


def test_a_head_that_cannot_be_told_makes_more() -> None:
    ledgers = (estimate(sampled("0.15.2", one)).ledger for one in ("4.49.0", "4.48.1"))
    told, whole = (max(one.allocated for one in made.moments if one.name == "step 2: loss") for made in ledgers)
    assert told < whole


def test_entropies_are_made_in_the_update_alone() -> None:
    ledger = estimate(sampled("0.23.0", "4.57.1")).ledger
    entropies = {at for at, line in enumerate(ledger.lines) if "entropies" in line.name}
    born = {one.moment for one in ledger.segments if any(event - 1 in entropies for event in one.events if event > 0)}
    assert {moment.partition(": ")[2] for moment in born} == {"loss"}


def test_weights_of_pairs_are_one_more_result_of_the_fused_head() -> None:
    """A number in fp32 for each token of both sequences, chosen and rejected."""
    stack = {"versions": {"torch": "2.13.0", "trl": "1.16.0"}, "loss": "fused-linear"}
    batch = {"micro_batch": 2, "sequence": 96}
    for weighs, results in ((False, 4), (True, 5)):
        plan = plan_of(task="dpo", batch=batch, stack={**stack, "options": {"use_weighting": weighs}})
        lines = [one for one in estimate(plan).ledger.lines if one.name.startswith("loss: result of each token")]
        assert [one.unit for one in lines] == [1536] * results  # 4 B x 4 sequences x 95 tokens, in blocks of 512 B


def supervised(options: dict[str, Any], trl: str = "", task: str = "sft", **stack: Any) -> Plan:
    versions = {"torch": "2.13.0", "accelerate": "1.15.0", "transformers": "5.24.0", **({"trl": trl} if trl else {})}
    return plan_of(task=task, stack={"versions": versions, "loss": "full-fp32", "options": options, **stack})


DFT: dict[str, Any] = {"loss_type": ["dft"]}
SMOOTHED: dict[str, Any] = {"label_smoothing_factor": 0.1}


@pytest.mark.parametrize(
    ("plan", "picked"),
    [
        (supervised(SMOOTHED), Picked.SMOOTHED),
        (supervised(SMOOTHED, "1.16.0", loss="fused-linear"), Picked.SMOOTHED),  # no labels are handed to the head
        (supervised(SMOOTHED, kernels=["liger"], task="pretrain"), Picked.SMOOTHED),
        (supervised({"label_smoothing_factor": 0}), None),
        (supervised(DFT, "0.24.0"), Picked.ROWS),
        (supervised(DFT, "1.14.0"), Picked.KERNEL),
        (supervised(DFT, "1.16.0", loss="fused-linear"), None),
        (supervised(DFT, "1.9.0", kernels=["liger"], loss="fused-linear"), None),
        (supervised(DFT, "0.24.0", task="pretrain"), None),
    ],
)
def test_a_supervised_loss_that_reads_all_logits(plan: Plan, picked: Picked | None) -> None:
    reading = scoring_of(plan).reading
    assert (reading and reading.picked) == picked
    assert reading is None or reading.cut is (Cut.COPY if picked is Picked.SMOOTHED else Cut.NONE)


def test_smoothed_labels_of_masked_words_shift_nothing() -> None:
    bert = {"model_type": "bert", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 4, "vocab_size": 2048, "architectures": ["BertForMaskedLM"]}  # fmt: skip
    plan = plan_of(bert, stack={"options": SMOOTHED}, evaluation={"micro_batch": 2})
    lines = [line for line in estimate(plan).ledger.lines if line.name.startswith("loss: log-probabilities")]
    assert {line.dims[1].size for line in lines} == {plan.batch.sequence}
