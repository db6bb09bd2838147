"""Building a quantised model: one matrix at a time lies whole on the device, and k-bit preparation casts the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate

LORA = {"kind": "lora", "r": 8, "targets": "all-linear", "dtype": "fp32"}
WIDE = {**LLAMA, "vocab_size": 256}  # the feed-forward's matrices are the largest


def answer(quantization: dict[str, Any], weights: str = "bf16") -> Estimate:
    precision = {"weights": weights, "compute": "bf16", "autocast": True, "gradients": "fp32"}
    return estimate(plan_of(WIDE, adapter=LORA, quantization=quantization, precision=precision))


def built(found: Estimate) -> tuple[int, int]:
    """The most that lives while the model is built, and what lives when it is."""
    now = most = 0
    lines = found.ledger.lines
    for moment, events, repeat in found.ledger.segments:
        if moment != "init":
            break
        for _ in range(repeat):
            for event in events:
                now += lines[event - 1].unit if event > 0 else -lines[-event - 1].unit
                most = max(most, now)
    return most, now


@pytest.mark.parametrize(
    "quantization", [{"kind": "nf4"}, {"kind": "nf4", "double": True}, {"kind": "fp4"}, {"kind": "int8"}]
)
def test_the_parameters_that_stay_are_those_of_the_ledger(quantization: dict[str, Any]) -> None:
    """Whatever was made on the way is gone, and the moment counts no more than what lived at once."""
    found = answer(quantization)
    most, left = built(found)
    init = next(one for one in found.ledger.moments if one.name == "init")
    assert init.allocated == most >= left
    names = {found.ledger.lines[at].name for at, _ in found.ledger.moments[-1].live}
    assert not [name for name in names if "as loaded" in name or "centred" in name]


def test_kbit_preparation_holds_a_parameter_twice_for_a_moment() -> None:
    found = answer({"kind": "nf4"}, weights="fp32")
    lines = [line for line in found.ledger.lines if line.name == "model.embed_tokens.weight, as loaded"]
    assert [line.dtype.name for line in lines] == ["bf16"]
    kept = [line for line in found.ledger.lines if line.name == "model.embed_tokens.weight"]
    assert [line.dtype.name for line in kept] == ["fp32"]


def test_other_kinds_are_loaded_as_they_are_stored() -> None:
    for kind in ("gptq4", "awq4", "fp8"):
        most, left = built(answer({"kind": kind}))
        assert most == left
