"""An evaluation over torchtitan's stages, against counts by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_pipelined import HIDDEN, LOGITS, most, pipeline
from trainledger.answer.estimate import estimate
from trainledger.ledger.rank import Ledger
from trainledger.lines.line import Account
from trainledger.plan.beyond import Evaluation

MOMENT, MICRO = "evaluation: forward", 8


def ledger(rank: int, how: dict[str, Any] | None, **parts: Any) -> Ledger:
    update = {"evaluation": None if how is None else Evaluation(**how)}
    return estimate(pipeline(**parts).model_copy(update=update), rank).ledger


def held(made: Ledger) -> dict[str, int]:
    """Copies of lines in the evaluation, by name."""
    live = next(one.live for one in made.moments if one.name == MOMENT)
    return {made.lines[line].name: copies for line, copies in live}


@pytest.mark.parametrize("parts", [{}, {"schedule": "interleaved", "vpp": 2}, {"torch": "2.6.0"}])
@pytest.mark.parametrize("rank", [0, 3])
def test_an_evaluation_moves_no_step(rank: int, parts: dict[str, Any]) -> None:
    plain, made = ledger(rank, None, **parts), ledger(rank, {}, **parts)
    steps = [(one.name, one.allocated) for one in plain.moments]
    assert [(one.name, one.allocated) for one in made.moments[: len(steps)]] == steps
    assert all(copies > 0 for one in made.moments for _, copies in one.live)


def test_every_micro_batch_leaves_its_output_until_the_next_step() -> None:
    """A stage's cache keeps them without backwards, too: the first has seven hidden states, and the input of the layer
    that runs; the last eight times its logits, and all of them once more as they are joined."""
    first, last = ledger(0, {}), ledger(3, {})
    assert held(first)["hidden states"] == MICRO
    assert held(last)["hidden states received"] == MICRO
    assert held(last)["logits of a micro-batch that has run"] == MICRO
    line = next(one for one in last.lines if one.name == "logits of all micro-batches")
    assert line.unit == MICRO * LOGITS
    assert most(first, "gradients received") == MICRO  # they wait for training


def test_buffers_of_another_batch_take_the_place_of_training_s() -> None:
    made = ledger(3, {"micro_batch": 2})
    units = {line.unit for line in made.lines if line.name == "hidden states received"}
    live = next(one.live for one in made.moments if one.name == MOMENT)
    assert units == {HIDDEN, 2 * HIDDEN}
    assert {made.lines[line].unit for line, _ in live if made.lines[line].name == "hidden states received"} == {
        2 * HIDDEN
    }


def test_weights_are_gathered_and_stay() -> None:
    live = next(one.live for one in ledger(0, {}).moments if one.name == MOMENT)
    made = ledger(0, {})
    gathered = sum(made.lines[line].unit * n for line, n in live if made.lines[line].account is Account.GATHERED)
    whole = sum(made.lines[line].unit * n for line, n in live if made.lines[line].account is Account.WEIGHTS)
    assert gathered >= whole * 2 * 2 // 4  # shards of two ranks in fp32, whole weights in bf16
