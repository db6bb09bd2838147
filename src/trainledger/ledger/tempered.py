"""Queries times numbers made of each token's position, on a tape.

Sources: transformers (5.24.0) models/ministral3/modeling_ministral3.py, get_llama_4_attn_scale;
models/llama4/modeling_llama4.py, Llama4TextAttention.forward.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32, INT64, DType
from trainledger.ledger import aten
from trainledger.ledger.tape import Prim, Tape
from trainledger.model.operations_every import Tempered

AFTER = ("floor", "log", "plus one inside", "times a number", "plus one")


def tempered(t: Tape, spec: Tempered, q: int) -> list[int]:
    """The queries; where the code names them, positions and numbers besides."""
    one = Axis(Dim.ONE, 1)
    dims = (one, t.dims[q][1], one, one)

    def made(kind: str, ins: tuple[int, ...], dtype: DType = FP32) -> int:
        return t.run(Prim(kind, ins, (t.fresh(dims, dtype, False, f"{kind} of positions"),), (), (), ()))

    named: list[int] = []
    if spec.early:
        number = made("quotient", ())
    else:
        positions = made("sum", (made("arange", (), INT64),), INT64)
        named.append(positions)
        number = made("sum", (made("cast", (positions,)),))
    for kind in AFTER:
        number = made(kind, (number,))
    if spec.early:
        return [aten.mul(t, q, aten.to(t, number, t.dtype[q]), "tempered")]
    named.append(number)
    out = aten.to(t, aten.mul(t, q, number, "tempered"), t.dtype[q])
    return [out, *named]
