"""Recompute of every so many layers, and of some modules of each."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_losses import HIDDEN, TOKENS, ledger, peak
from trainledger.ledger.run import every_of


def forward(recompute: Any) -> int:
    return peak(ledger(loss="full", recompute=recompute), "loss")


@pytest.mark.parametrize(
    ("policy", "number"),
    [("every 2nd layer", 2), ("every 3rd layer", 3), ("Every 1 layer", 1), ("op", 0), (None, 0), ("every layer", 0)],
)
def test_policies(policy: str | None, number: int) -> None:
    assert every_of(policy) == number


def test_half_of_the_layers_keep_what_they_save() -> None:
    none, half, full = (
        forward(one) for one in ("none", {"kind": "selective", "policy": "every 2nd layer"}, {"kind": "full"})
    )
    assert none - half == pytest.approx(half - full, rel=0.02)


def test_a_module_keeps_its_input_alone() -> None:
    """Two layers' gate, activation, up and product, each 512 wide in 16 bits; the norm's output stays."""
    none, some = forward("none"), forward({"kind": "selective", "modules": ["mlp"]})
    assert none - some == pytest.approx(2 * 4 * 2 * TOKENS * 2 * HIDDEN, rel=0.01)


def test_recomputed_tensors_are_told_apart() -> None:
    made = ledger(loss="full", recompute={"kind": "selective", "modules": ["mlp"]})
    names = {line.name for line in made.lines if line.account.value == "recomputed_activations"}
    assert any("mlp" in name for name in names)
    assert not any("self_attn" in name for name in names)
