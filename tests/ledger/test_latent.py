"""Attention through latents on a tape: pairs that turn, keys written part by part; what is kept, what flows back."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BF16, COMPLEX64, FP32, DType
from trainledger.ledger import latent
from trainledger.ledger.engine import Backward
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward

BATCH, SEQUENCE, HEADS, OWN, TURNED = 2, 64, 4, 24, 8
TOKENS = (Axis(Dim.BATCH, BATCH), Axis(Dim.SEQUENCE, SEQUENCE))
HALF = Axis(Dim.ROPE_DIM, TURNED // 2)


def dims(heads: int, width: int) -> Dims:
    return (*TOKENS, Axis(Dim.HEADS, heads), Axis(Dim.HEAD_DIM, width))


def given(tape: Tape, heads: int, width: int, grad: bool = True, dtype: DType = BF16) -> int:
    return tape.inherit(dims(heads, width), dtype, grad, f"{heads} of {width}")


def kept(tape: Tape) -> list[int]:
    return [value for prim in tape.prims for value in prim.saves]


def test_pairs_keep_the_tables_alone() -> None:
    tape = Tape()
    q, k = given(tape, HEADS, TURNED), given(tape, 1, TURNED)
    cos, sin = (tape.outside((*TOKENS[1:], Axis(Dim.ROPE_DIM, TURNED)), BF16, False) for _ in range(2))
    turned = latent.interleaved(tape, q, k, (cos, sin))
    assert set(kept(tape)) == {cos, sin}
    assert [tape.dims[value] for value in turned] == [tape.dims[q], tape.dims[k]]


@pytest.mark.parametrize("dtype", [BF16, FP32])
def test_complex_pairs_keep_the_turns_alone(dtype: DType) -> None:
    tape = Tape()
    q, k = given(tape, HEADS, TURNED, dtype=dtype), given(tape, 1, TURNED, dtype=dtype)
    turns = tape.outside((*TOKENS[1:], HALF), COMPLEX64, False)
    turned = latent.compound(tape, (q, k), turns, False)
    assert kept(tape) == [turns, turns]
    assert [tape.dtype[value] for value in turned] == [dtype, dtype]
    products = [tape.storages[tape.store[prim.outs[0]]] for prim in tape.prims if prim.kind == "mul"]
    assert [one.size for one in products] == [4 * BATCH * SEQUENCE * heads * TURNED for heads in (HEADS, 1)]


@pytest.mark.parametrize(("own", "shared"), [(True, True), (True, False), (False, True), (False, False)])
def test_keys_pass_gradients_to_the_parts_that_need_one(own: bool, shared: bool) -> None:
    tape = Tape()
    parts = given(tape, HEADS, OWN, own), given(tape, 1, TURNED, shared)
    keys = latent.filled(tape, *parts, dims(HEADS, OWN + TURNED))
    assert tape.grad[keys] is (own or shared)
    assert not kept(tape)
    if not tape.grad[keys]:
        return
    forward = run_forward(tape, frozenset({keys}), True)
    back = Backward(tape, dict(forward.held), frozenset())
    back.seed(keys, "gradient of keys")
    back.run(0, len(tape.prims))
    arrived = {value: tape.storages[back.grads[value]].size for value in parts if value in back.grads}
    whole = {parts[0]: 2 * BATCH * SEQUENCE * HEADS * OWN, parts[1]: 2 * BATCH * SEQUENCE * TURNED}
    assert arrived == {value: size for value, size in whole.items() if tape.grad[value]}
    level = sum((1 if event > 0 else -1) * tape.storages[abs(event) - 1].size for event in back.events)
    assert level + 2 * BATCH * SEQUENCE * HEADS * (OWN + TURNED) == sum(arrived.values())  # the seed was there


def test_a_concatenation_has_the_widest_dtype() -> None:
    tape = Tape(BF16)
    parts = [given(tape, HEADS, OWN), given(tape, HEADS, TURNED, dtype=FP32)]
    out = latent.joined(tape, parts, dims(HEADS, OWN + TURNED))
    assert tape.dtype[out] == FP32
    assert tape.store[out] != EXTERNAL
