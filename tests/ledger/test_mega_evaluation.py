"""An evaluation under Megatron-Core, against counts by hand of its largest instant."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.ledger.test_megatron import BATCH, HIDDEN, LLAMA, LOCAL, SEQUENCE, plan_of
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.lines.line import Account
from trainledger.model.build import model_of
from trainledger.plan.beyond import Evaluation

MOMENT = "evaluation: forward"
STATES = (
    Account.WEIGHTS, Account.GRADIENTS, Account.MASTER, Account.OPTIMIZER, Account.BUFFERS, Account.WORKSPACE,
    Account.INPUTS,
)  # fmt: skip
EDGE = 2 * BATCH * SEQUENCE * HIDDEN  # bytes of one hidden state
WAYS: list[dict[str, Any]] = [
    {},
    {"parallel": {"pp": 2, "tp": 2, "sp": True, "world": 8}, "batch": {"accumulation": 4}},
    {"parallel": {"pp": 2, "vpp": 2, "world": 4}, "batch": {"accumulation": 4}},
    {"parallel": {"strategy": "megatron-fsdp", "world": 4}},
    {"parallel": {"world": 2}, "precision": {"gradients": "bf16"}},
    {"stack": {"recompute": {"kind": "full", "method": "uniform", "num_layers": 1}}},
]


def ledger(how: dict[str, Any] | None, rank: int | None = None, **parts: Any) -> Ledger:
    plan = plan_of(LLAMA, **parts).model_copy(update={"evaluation": None if how is None else Evaluation(**how)})
    return rank_ledger(plan, model_of(plan), "sm80", rank)


def live(made: Ledger, moment: str = MOMENT) -> dict[str, int]:
    """Bytes of lines at a moment, by name."""
    held = next(one.live for one in made.moments if one.name == moment)
    found = Counter[str]()
    for line, copies in held:
        found[made.lines[line].name] += made.lines[line].unit * copies
    return found


def states(made: Ledger, moment: str) -> dict[str, int]:
    held = next(one.live for one in made.moments if one.name == moment)
    lines = made.lines
    return {lines[line].name: lines[line].unit * copies for line, copies in held if lines[line].account in STATES}


@pytest.mark.parametrize("parts", WAYS)
def test_an_evaluation_moves_no_step_and_takes_no_more_states(parts: dict[str, Any]) -> None:
    plain, made = ledger(None, **parts), ledger({"batches": 3}, **parts)
    assert [*made.moments[:-1]] == [*plain.moments]
    assert made.moments[-1].name == MOMENT
    assert states(made, MOMENT) == states(made, "step 2: optimizer")
    assert all(copies > 0 for _, copies in made.moments[-1].live)


def test_nothing_of_an_earlier_layer_is_kept() -> None:
    """One stage: beside states the loss has the embedding's output, the last layer's, the norm's,
    logits in 16 bits, the softmax in 32."""
    logits = BATCH * SEQUENCE * LLAMA["vocab_size"]
    found = live(ledger({}))
    assert found["hidden states"] == 2 * EDGE
    assert found["decoder.final_layernorm: output"] == EDGE
    assert found["output_layer: output"] == 2 * logits
    assert found["loss: softmax in fp32"] == 4 * logits
    assert not any(name.startswith("decoder.layers") for name in found if "norm" not in name and "of" not in name)


def test_more_batches_take_one_loss_each_and_a_stage_holds_what_it_sent() -> None:
    parts: dict[str, Any] = {"parallel": {"pp": 2, "world": 2}, "batch": {"accumulation": 4}}
    one, two, three = (ledger({"batches": count}, 0, **parts) for count in (1, 2, 3))
    # the first stage sends: what went before is there while the next runs
    assert live(two)["hidden states"] == live(one)["hidden states"] + EDGE
    assert live(three) == live(two)


def test_a_larger_batch_takes_the_place_of_training_s() -> None:
    made, larger = ledger({}), ledger({"micro_batch": 2 * BATCH})
    assert live(larger)["token ids"] == 2 * live(made)["token ids"]
    assert live(larger)["output_layer: output"] == 2 * live(made)["output_layer: output"]
    assert larger.moments[:-1] == made.moments[:-1]


def test_dropout_leaves_no_mask() -> None:
    dropped = {**LLAMA, "hidden_dropout": 0.1, "attention_dropout": 0.1}
    plan = plan_of(dropped, stack={"options": LOCAL}).model_copy(update={"evaluation": Evaluation()})
    made = rank_ledger(plan, model_of(plan), "sm80")
    assert any("dropout" in line.name for line in made.lines)
    assert not any("dropout" in name for name in live(made))
