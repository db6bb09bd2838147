"""Rotary embedding by complex numbers in a published benchmark: Llama 4's, by Liger's kernel or by Transformers.

Sources: liger_kernel/ops/llama4_rope.py (0.6.2 to 0.8.2), benchmark/scripts/benchmark_llama4_rope.py;
transformers/models/llama4/modeling_llama4.py, apply_rotary_emb and Llama4TextRotaryEmbedding.
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, INT64
from trainledger.ledger import aten
from trainledger.ledger.operator_tools import ONE, entry, passing, several
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape

Pair = tuple[int, int]
PARTS = 1 + 1  # of a complex number


def llama4_rope(run: OperatorRun) -> Written:
    """Queries and keys of one sequence, turned by complex factors of each token."""
    t = run.tape()
    hidden = run.size("H") if "H" in run.shape else run.size("hidden_size")
    length = Axis(Dim.SEQUENCE, run.size("T") if "T" in run.shape else run.size("seq_len"))
    width = Axis(Dim.HEAD_DIM, hidden // run.size("num_q_heads"))
    queries, keys = (
        entry(t, name, (ONE, length, Axis(Dim.HEADS, run.size(name)), width), run.element)
        for name in ("num_q_heads", "num_kv_heads")
    )
    factors: Dims = (ONE, length, ONE, width)  # as many numbers as half as many complex ones
    table = t.outside(factors, FP32, False)
    turn = _turned_in_place if run.implementation == "liger" else _multiplied
    outs = turn(t, (queries, keys), table)
    frequencies = FP32.bytes_of(width.size // PARTS)
    given = (INT64.bytes_of(length.size), frequencies, FP32.bytes_of(elements(factors)))
    return Written(t, (queries, keys), (), outs, given, products=True)


def _turned_in_place(t: Tape, pair: Pair, table: int) -> Pair:
    """The kernel writes over what it is handed, forward and backward. The factors lie token by token in neither case:
    their real and imaginary parts are cast, and copied once more, each time."""
    one, length, _, width = t.dims[table]
    half = (one, length, Axis(Dim.HEAD_DIM, width.size // PARTS))
    names = ("real parts", "imaginary parts, cast", "imaginary parts")
    outs = (t.alias(pair[0]), t.alias(pair[1]))
    inside = passing(*several(t, half, t.dtype[pair[0]], *names))
    steps = (*inside, Step(Code.PASS, 0, 0), Step(Code.PASS, 1, 1))
    t.run(Prim("rotary", (*pair, table), outs, (table,), steps, several(t, half, t.dtype[pair[0]], *names)))
    return outs


def _multiplied(t: Tape, pair: Pair, table: int) -> Pair:
    """Complex products in fp32, cast back; the four names of complex tensors live until both are done."""
    wide = [aten.to(t, x, FP32) for x in pair]
    products = [_product(t, x, table) for x in wide]
    first, second = (aten.to(t, product, t.dtype[x]) for x, product in zip(pair, products, strict=True))
    t.end([*wide, *products])
    return first, second


def _product(t: Tape, x: int, table: int) -> int:
    """x times the factors, which it saves; backward writes out their conjugates."""
    out = t.fresh(t.dims[x], FP32, True, "complex product")
    (conjugates,) = several(t, t.dims[table], FP32, "conjugate factors")
    steps = (Step(Code.BORN, 0, conjugates), Step(Code.GRAD, 0), Step(Code.DEAD, 0, conjugates))
    return t.run(Prim("mul", (x, table), (out,), (table,), steps, ()))


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("llama4_rope", "liger"): llama4_rope,
    ("llama4_rope", "huggingface"): llama4_rope,
}
