"""Log-probabilities, entropy and values of Megatron-Core's logits, against counts by hand."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.ledger.test_megatron import BATCH, HIDDEN, LLAMA, SEQUENCE, plan_of
from trainledger.ledger.mega_acting import How, run_alone
from trainledger.ledger.rank import rank_ledger
from trainledger.lines.line import Line
from trainledger.lines.stream import Segment, fold
from trainledger.model.build import model_of
from trainledger.model.valued import valued
from trainledger.plan.schema import Plan

TOKENS, WORDS = BATCH * SEQUENCE, LLAMA["vocab_size"]
LOGITS = TOKENS * WORDS  # of one rank


def plan(**parts: Any) -> Plan:
    """As a role's own plan is: of the task, with nobody beside it."""
    return plan_of(LLAMA, **parts).model_copy(update={"task": "grpo"})


def over_words(lines: tuple[Line, ...], live: tuple[tuple[int, int], ...]) -> Counter[str]:
    """Bytes of what has an entry per token and word, by name, at a moment."""
    found = Counter[str]()
    for number, copies in live:
        line = lines[number]
        if line.unit >= LOGITS and "weight" not in line.name:
            found[line.name.partition(": ")[2] or line.name] += line.unit * copies
    return found


def forward(entropy: bool) -> Counter[str]:
    given = plan()
    made = run_alone(given, model_of(given), ("sm80", 0), How("policy", "log-probs", entropy=entropy))
    segments = [one._replace(moment="forward") for one in (*[Segment("", *run) for run in made.weights], *made.forward)]
    (moment,) = fold(made.lines, segments)
    return over_words(made.lines, moment.live)


def test_a_forward_holds_logits_in_16_and_32_bits() -> None:
    """At its largest they are cast: what the wrapper was handed is there still."""
    assert sorted(forward(False).values()) == [2 * LOGITS, 4 * LOGITS]


def test_an_entropy_takes_a_copy_and_a_softmax_beside() -> None:
    """Logits, their copy, and the softmax, each in fp32: what the loss then makes of the copy is made in place."""
    assert sorted(forward(True).values()) == [4 * LOGITS] * 3


@pytest.mark.parametrize(
    ("options", "kept"),
    [
        ({}, ["gradient of loss: cast to fp32", "gradient of loss: cast to fp32 (2)"]),  # the first is the softmax
        ({"entropy_coeff": 0.0}, ["gradient of loss: cast to fp32", "gradient of loss: cast to fp32 (2)"]),
        ({"entropy_coeff": 0.01}, ["loss: cast to fp32", "loss: copy of the logits", "loss: softmax of the entropy"]),
    ],
)
def test_an_update_with_an_entropy_keeps_three_times_the_logits(options: dict[str, Any], kept: list[str]) -> None:
    given = plan()
    stack = given.stack.model_copy(update={"options": {**given.stack.options, **options}})
    given = given.model_copy(update={"stack": stack})
    made = rank_ledger(given, model_of(given), "sm80")
    (live,) = (one.live for one in made.moments if one.name == "step 2: backward")
    large = [made.lines[number] for number, _ in live if "loss" in made.lines[number].name]
    assert [(line.name, line.unit) for line in large if line.unit >= LOGITS] == [(name, 4 * LOGITS) for name in kept]


def test_the_division_s_gradient_is_a_tensor_of_its_own() -> None:
    """Backward at its largest: the softmax, which became the gradient, and the gradient before the division."""
    given = plan()
    made = rank_ledger(given, model_of(given), "sm80")
    (live,) = (one.live for one in made.moments if one.name == "step 2: backward")
    large = [made.lines[number].unit * copies for number, copies in live if "loss" in made.lines[number].name]
    assert sum(size for size in large if size >= LOGITS) == 8 * LOGITS


def test_values_are_one_number_a_token_and_a_head_on_every_rank() -> None:
    given = plan(parallel={"tp": 2, "sp": True, "world": 2})
    model = valued(model_of(given))
    assert model.vocab == 1
    assert [weight.elements for weight in model.head.weights] == [HIDDEN, HIDDEN]  # the norm's, and the head's
    made = rank_ledger(given, model, "sm80")
    assert all(line.unit < LOGITS for line in made.lines if "loss" in line.name)
    assert any("value" in name or "loss" in name for name in (line.name for line in made.lines))
