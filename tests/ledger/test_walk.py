"""Births and deaths on small tapes: what autograd keeps, when it lets go, and what recompute changes."""

from __future__ import annotations

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, INT64
from trainledger.ledger import aten, nn
from trainledger.ledger.engine import Backward
from trainledger.ledger.tape import OWN, Tape
from trainledger.ledger.walk import early_stop, run_forward
from trainledger.model.program import Weight

TOKENS = (Axis(Dim.BATCH, 2), Axis(Dim.SEQUENCE, 512))
WIDE = (*TOKENS, Axis(Dim.HIDDEN, 256))
MATRIX = Weight("weight", (Axis(Dim.HIDDEN, 256), Axis(Dim.HIDDEN, 256)))
SIZE = 2 * 512 * 256 * 2


def names(tape: Tape, events: list[int]) -> list[str]:
    return [("+" if event > 0 else "-") + tape.storages[abs(event) - 1].name for event in events]


def two_linears(shared: bool = False) -> tuple[Tape, int, int]:
    tape = Tape()
    x = tape.inherit(WIDE, BF16, True, "x")
    weight = tape.outside(MATRIX.dims, BF16, True, MATRIX)
    tape.scope = "first"
    y = nn.linear(tape, x, WIDE, weight)
    tape.scope = "second"
    z = nn.linear(tape, y, WIDE, weight if shared else tape.outside(MATRIX.dims, BF16, True, MATRIX))
    tape.end([x])
    return tape, x, z


def test_a_linear_saves_its_input_and_lets_it_go_in_backward() -> None:
    tape, x, z = two_linears()
    forward = run_forward(tape, frozenset({z}), saving=True)
    assert names(tape, forward.events) == ["+first: output", "+second: output"]
    back = Backward(tape, dict(forward.held), frozenset())
    back.seed(z, "gradient of z")
    back.run(0, len(tape.prims))
    assert names(tape, back.events) == [
        "+gradient of weight", "+gradient of first: output", "-gradient of z", "-first: output",
        "+gradient of weight", "+gradient of x", "-gradient of first: output", "-x",
    ]  # fmt: skip
    assert list(back.grads) == [x]


def test_a_parameter_that_two_layers_read_arrives_once_as_a_sum() -> None:
    """Gradients from products are views, so that the sum of two is a third tensor."""
    tape, _, z = two_linears(shared=True)
    back = Backward(tape, dict(run_forward(tape, frozenset({z}), saving=True).held), frozenset())
    arrived: list[str] = []

    def rule(weight: Weight, storage: int) -> list[int]:
        arrived.append(f"{weight.name}: {tape.storages[storage].name}")
        return []

    back.leaf = rule
    back.seed(z, "gradient of z")
    back.run(0, len(tape.prims))
    assert arrived == ["weight: sum of gradients"]
    events = names(tape, back.events)
    assert events.count("+gradient of weight") == events.count("-gradient of weight") == 2
    assert events.count("+sum of gradients") == 1


def test_gradients_of_a_frameworks_own_product_are_added_in_place() -> None:
    """They are no views, unlike those of PyTorch's linear layer."""
    tape, _, z = two_linears(shared=True)
    tape.prims = [prim._replace(kind=OWN) for prim in tape.prims]
    back = Backward(tape, dict(run_forward(tape, frozenset({z}), saving=True).held), frozenset())
    arrived: list[str] = []
    back.leaf = lambda weight, storage: arrived.append(tape.storages[storage].name) or []
    back.seed(z, "gradient of z")
    back.run(0, len(tape.prims))
    assert arrived == ["gradient of weight"]
    assert "+sum of gradients" not in names(tape, back.events)


def test_a_table_that_a_lookup_reads_besides_two_products_arrives_once() -> None:
    tape = Tape()
    table = tape.outside(MATRIX.dims, BF16, True, MATRIX)
    ids = tape.outside(TOKENS, INT64, False)
    x = nn.embedding(tape, ids, table, WIDE)
    z = nn.linear(tape, nn.linear(tape, x, WIDE, table), WIDE, table)
    back = Backward(tape, dict(run_forward(tape, frozenset({z}), saving=True).held), frozenset())
    arrived: list[Weight] = []
    back.leaf = lambda weight, storage: arrived.append(weight) or []
    back.seed(z, "gradient of z")
    back.run(0, len(tape.prims))
    assert arrived == [MATRIX]


def test_without_saving_a_temporary_dies_at_its_last_use() -> None:
    tape, _, z = two_linears()
    forward = run_forward(tape, frozenset({z}), saving=False)
    assert names(tape, forward.events) == ["+first: output", "+second: output", "-x", "-first: output"]


def test_an_early_stop_does_not_run_the_last_product() -> None:
    tape, x, _ = two_linears()
    again = run_forward(tape, frozenset({x}), saving=True, stop=early_stop(tape))
    assert names(tape, again.events) == ["+first: output"]


def test_an_early_stop_comes_after_a_primitive_that_saves_its_result() -> None:
    tape = Tape()
    x = tape.inherit(WIDE, BF16, True, "x")
    y = aten.unary(tape, "relu", x, saves_out=True)
    aten.shift(tape, y)
    assert early_stop(tape) == 1


@pytest.mark.parametrize(("autocast", "expected"), [(None, 3), (BF16, 2)])
def test_the_first_sum_of_linear_inputs_is_a_third_tensor_unless_a_cast_comes_between(
    autocast: object, expected: int
) -> None:
    tape = Tape(BF16 if autocast else None)
    dtype = FP32 if autocast else BF16
    x = tape.inherit(WIDE, dtype, True, "x")
    weights = [Weight(name, MATRIX.dims) for name in ("gate", "up")]
    outs = []
    for weight in weights:
        tape.scope = weight.name
        outs.append(nn.linear(tape, x, WIDE, tape.outside(MATRIX.dims, dtype, True, weight)))
    both = aten.add(tape, *outs)
    forward = run_forward(tape, frozenset({both, *tape.cached.values()}), saving=True)
    back = Backward(tape, dict(forward.held), frozenset())
    back.seed(both, "incoming")
    back.run(0, len(tape.prims))
    made = [name for name in names(tape, back.events) if name in ("+gradient of x", "+sum of gradients")]
    assert len(made) == expected


def test_a_product_saves_a_factor_only_when_the_other_needs_a_gradient() -> None:
    tape = Tape()
    x = tape.inherit(WIDE, BF16, True, "x")
    cos = tape.fresh(WIDE, BF16, False, "cos")
    out = aten.mul(tape, x, cos)
    assert tape.prims[-1].saves == (cos,)
    aten.mul(tape, out, x)
    assert tape.prims[-1].saves == (out, x)


def test_dtypes_promote_and_dims_stretch() -> None:
    assert aten.promote(BF16, FP32) == FP32
    row = (Axis(Dim.ONE, 1), *WIDE[1:])
    assert aten.broadcast(row, WIDE) == WIDE
    assert Tape().fresh(WIDE, BF16, False) == 0
