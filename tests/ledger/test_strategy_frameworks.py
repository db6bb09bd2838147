"""How FSDP1 is set up for frameworks that wrap models by themselves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate

LORA = {"kind": "lora", "r": 8, "targets": ["q_proj", "v_proj"], "dtype": "bf16"}
SHARDED = {"strategy": "fsdp1", "world": 2, "dp": 2}


def found(framework: str, **sections: Any) -> Estimate:
    stack = {"framework": framework, "loss": "chunked" if framework == "litgpt" else "full-fp32", "versions": {}}
    precision = {"reduce": "bf16"}
    return estimate(plan_of(parallel=SHARDED, adapter=LORA, stack=stack, precision=precision, **sections))


def live(answer: Estimate, moment: str, words: str) -> int:
    """Bytes of lines of this name at the largest moment of this name."""
    lines = answer.ledger.lines
    best = max((one for one in answer.ledger.moments if one.name == moment), key=lambda one: one.allocated)
    return sum(lines[at].unit * count for at, count in best.live if words in lines[at].name)


@pytest.mark.parametrize(("framework", "whole"), [("litgpt", True), ("fsdp_qlora", False)])
def test_a_flat_parameter_that_mixes_makes_gradients_of_what_is_frozen(framework: str, whole: bool) -> None:
    """LitGPT's layers are one flat parameter each; fsdp_qlora's trained leaves are units of their own."""
    answer = found(framework)
    matrices = sum(
        line.unit for line in answer.ledger.lines if line.account == "gradients" and "proj" in line.name
    ) + sum(line.unit for line in answer.ledger.lines if "joined" in line.name)
    frozen = 3 * 256 * 640 * 2
    assert (matrices > frozen) is whole


def test_gradients_stay_whole_while_litgpt_accumulates() -> None:
    once, twice = (found("litgpt", batch={"accumulation": count}) for count in (1, 2))
    words = "joined"
    assert live(twice, "step 1: forward", words) > live(once, "step 1: forward", words) == 0


def test_the_loop_of_fsdp_qlora_lets_go_of_the_logits_before_the_next_forward() -> None:
    answer = found("fsdp_qlora")
    assert live(answer, "step 1: backward of the loss", "logits") > 0
    assert live(answer, "step 2: forward", "logits") == 0
