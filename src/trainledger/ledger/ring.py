"""Attention whose keys and values are spread over ranks along the sequence, as PyTorch's context parallelism runs it.

A ring's first round runs on the rank's own keys and values while those of all ranks are gathered from one tensor of
both; results of rounds are merged in fp32. Backward gathers again, and adds up gradients in fp32 that are passed on.
Flex attention reads keys and values of all ranks at once.
Source: torch/distributed/tensor/experimental/_attention.py, _templated_ring_attention and its backward,
_AllGatherRotater, _SDPAMerger (v2.5 to v2.13).
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, elements
from trainledger.facts.dtypes import FP32, DType
from trainledger.ledger import aten
from trainledger.ledger.tape import Code, Prim, Step, Tape

CALL = "sdpa"


def around(t: Tape, result: int, first: int, ranks: int) -> int:
    """The result of the attention that was written since primitive `first`, on one of so many ranks, with what lies
    beside it."""
    at = next((at for at in reversed(range(first, len(t.prims))) if t.prims[at].kind == CALL), None)
    if ranks == 1 or at is None:
        return result
    prim = t.prims[at]
    q, k, v = prim.ins[:3]
    out, dtype = t.dims[prim.outs[0]], t.dtype[q]
    both = elements(t.dims[k]) + elements(t.dims[v])

    def flat(size: int, kind: DType, name: str) -> int:
        return aten.temporary(t, (Axis(Dim.ELEMENTS, size),), kind, f"ring: {name}")

    def shared() -> list[int]:
        return [flat(both, dtype, "keys and values"), flat(both * ranks, dtype, "keys and values of all ranks")]

    merged = [aten.temporary(t, out, FP32, f"ring: {name}") for name in ("result so far", "result", "difference")]
    slopes = [flat(elements(t.dims[q]), FP32, "gradient of queries so far")]
    slopes += [flat(both, FP32, f"gradients of keys and values {name}") for name in ("so far", "passed on", "received")]
    beside = [*shared(), *slopes]
    steps = (
        *(Step(Code.BORN, 0, one) for one in beside),
        *prim.steps,
        *(Step(Code.DEAD, 0, one) for one in beside),
    )
    t.prims[at] = prim._replace(work=(*prim.work, *shared(), *merged), steps=steps)
    return _in_order(t, result)


def _in_order(t: Tape, result: int) -> int:
    """The result token by token: halves of it that were merged apart were joined head by head, on all ranks but the
    last, whose result is not copied."""
    out = t.fresh(t.dims[result], t.dtype[result], t.grad[result], "ring: result, token by token")
    t.run(Prim("clone", (result,), (out,), (), aten.PASS0, ()))
    t.end([result])
    return out
