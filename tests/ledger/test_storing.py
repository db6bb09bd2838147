"""Keys and values in a dictionary: what their graph keeps, and when it goes (whole steps: witness/test_gemma4.py)."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16
from trainledger.ledger import aten
from trainledger.ledger.blocks import Walked
from trainledger.ledger.storing import Kept, behind, handed_on
from trainledger.ledger.tape import Tape

ROWS = (Axis(Dim.TOKENS, 32), Axis(Dim.HIDDEN, 16))


def test_only_what_led_to_them_is_behind() -> None:
    tape = Tape()
    x = tape.inherit(ROWS, BF16, True, "h")
    factor = tape.outside(ROWS, BF16, True)
    queries, keys = aten.mul(tape, x, factor), aten.square(tape, x)
    tape.stored, tape.stored_at = [keys], len(tape.prims)
    aten.mul(tape, queries, keys)
    assert behind(tape) == {keys, x}


def walked(again: int, stored: tuple[int, ...] = (), named: frozenset[str] = frozenset()) -> Walked:
    held, shared = frozenset[int](), frozenset({"mask"})
    if not stored:
        return Walked((), (), (), shared, held, True, True, (0, 0), again=again)
    return Kept((), (), (), shared, held, True, True, (0, 0), again=again, stored=stored, named=named)


def test_without_recompute_they_go_with_the_forward() -> None:
    layers = [walked(0), walked(0, (3, 4))]
    assert handed_on(layers) == (layers, {}, [3, 4])


def test_one_recomputed_layer_keeps_those_of_others() -> None:
    layers, held, ended = handed_on([walked(0, (3,)), walked(1)])
    assert (held, ended) == ({"stored 0": 3}, [])
    assert [one.outside for one in layers] == [{"mask"}, {"mask", "stored 0"}]


def test_every_recomputed_layer_keeps_them() -> None:
    layers, held, ended = handed_on([walked(1), walked(1, (3,), frozenset({"cos"}))])
    assert (held, ended) == ({"stored 0": 3}, [])
    assert all(one.outside == {"mask", "cos", "stored 0"} for one in layers)
