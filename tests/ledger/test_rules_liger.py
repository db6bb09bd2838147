"""Fused kernel sets: what a layer keeps under them, and which weights they leave without a gradient."""

from __future__ import annotations

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16
from trainledger.ledger.engine import Backward
from trainledger.ledger.frame import Frame, Setting
from trainledger.ledger.rules import lower
from trainledger.ledger.rules_liger import for_family, replaces, untrained
from trainledger.ledger.software import Software
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.build import build
from trainledger.model.program import Role

KEYS = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
}  # fmt: skip
BATCH, SEQUENCE = 2, 64


def saved(software: Software, **keys: object) -> tuple[float, int]:
    """Bytes that one layer keeps for backward, per token and hidden element; and its backward's peak with them."""
    model = build({**KEYS, **keys})
    tape = Tape()
    sequence, one = Axis(Dim.SEQUENCE, SEQUENCE), Axis(Dim.ONE, 1)
    hidden = tape.inherit((Axis(Dim.BATCH, BATCH), sequence, model.hidden), BF16, True, "h")
    assert model.rotary
    table = (one, sequence, one, Axis(Dim.ROPE_DIM, model.rotary.dim))
    names = {"h": hidden, "cos": tape.outside(table, BF16, False), "sin": tape.outside(table, BF16, False)}
    setting = Setting(BATCH, SEQUENCE, "sdpa", BF16, BF16)
    known = for_family(software, model.family)
    lower(Frame(tape, setting, names, lambda weight: True, {}, software=known), model.blocks[0].ops)
    tape.end([hidden, *(value for name, value in names.items() if name != "h")])
    forward = run_forward(tape, frozenset({names["h"]}), True)
    back = Backward(tape, dict(forward.held), frozenset())
    back.seed(names["h"], "gradient of h")
    back.run(0, len(tape.prims))
    assert not back.held
    total = sum(tape.storages[storage].size for storage in forward.held)
    high = level = total
    for event in back.events:
        level += tape.storages[abs(event) - 1].size * (1 if event > 0 else -1)
        high = max(high, level)
    return total / (BATCH * SEQUENCE * model.hidden.size), high


LIGER, FOAK = Software(frozenset({"liger"}), {"liger-kernel": "0.8.0"}), Software(frozenset({"foak"}))


def test_fused_norms_and_products_keep_less() -> None:
    """Without: 16 for two norms, 8f/h for gate, silu, up and product. Fused: 4 of each norm, the product of both."""
    plain, liger, foak = (saved(one)[0] for one in (Software(), LIGER, FOAK))
    ratio = 512 / 256
    assert plain - foak == pytest.approx(16 - 8, abs=0.05)
    assert foak - liger == pytest.approx(2 * ratio, abs=0.01)


def test_they_overwrite_what_they_are_handed() -> None:
    assert max(saved(LIGER)[1], saved(FOAK)[1]) < saved(Software())[1]


def test_a_family_that_is_not_patched_keeps_its_own() -> None:
    assert not replaces(for_family(LIGER, "gpt2"))
    assert for_family(Software(frozenset({"foak"})), "gpt_bigcode").kernels == {"foak"}
    assert not replaces(for_family(FOAK, "gpt_bigcode"))
    assert replaces(for_family(LIGER, "llama"))


def test_norms_without_a_gradient() -> None:
    model = build(KEYS)
    assert {weight.role for weight in untrained(FOAK, model)} == {Role.NORM}
    assert untrained(LIGER, model) == frozenset()


@pytest.mark.parametrize("kind", ["exaone", "internlm3"])
def test_types_that_run_as_llama_are_not_patched(kind: str) -> None:
    """Liger looks for the model's type, not for its class."""
    keys = {**KEYS, "model_type": kind}
    plain, fused = (estimate(plan_of(keys, stack={"kernels": one, "loss": "full"})) for one in ([], ["liger"]))
    assert plain.peak.allocated == fused.peak.allocated
    assert plain.peak.allocated != estimate(plan_of(KEYS, stack={"kernels": ["liger"], "loss": "full"})).peak.allocated
