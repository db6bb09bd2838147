"""Attention over a sequence that is spread over context-parallel ranks: by a ring, by gathering, or by heads.

Source: transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py (2.5 to 2.17). The rank counted
is the one whose tokens see all others', which attends to whole blocks at each step of the ring.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.base.sources import Basis
from trainledger.facts.dtypes import FP32, DType
from trainledger.facts.transformer_engine import CHANGES, RING
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega import Engine
from trainledger.ledger.tape import Code, Prim, Step

Heads = tuple[int, int, int]  # queries, keys, values
GRADS = tuple(Step(Code.GRAD, at) for at in range(len(("queries", "keys", "values"))))


def exchanged(f: Frame, engine: Engine, qkv: Heads) -> int:
    """Attention of this rank's tokens to all; queries, keys and values are contiguous."""
    match engine.exchange:
        case "a2a":
            return _by_heads(f, engine, qkv)
        case "all_gather":
            return _gathered(f, engine, qkv)
        case _:
            return _ring(f, engine, qkv)


class _Made:
    """Temporaries of one function, by name."""

    def __init__(self, f: Frame) -> None:
        self.f, self.all = f, list[int]()

    def make(self, dims: Dims, dtype: DType, name: str, count: int = 1) -> list[int]:
        made = [aten.temporary(self.f.tape, dims, dtype, f"{name} {at}" if at else name) for at in range(count)]
        self.all += made
        return made


def _born(made: list[int]) -> tuple[Step, ...]:
    return tuple(Step(Code.BORN, 0, one) for one in made)


def _dead(made: list[int]) -> tuple[Step, ...]:
    return tuple(Step(Code.DEAD, 0, one) for one in made)


def _both(dims: Dims) -> Dims:
    """Keys and values as one tensor."""
    return (Axis(Dim.ELEMENTS, len(("keys", "values"))), *dims)


def longer(dims: Dims, by: int) -> Dims:
    """The dims with a sequence `by` times as long."""
    return tuple(Axis(one.dim, one.size * by) if one.dim is Dim.SEQUENCE else one for one in dims)


def _kernel(f: Frame, engine: Engine, dims: Dims) -> list[int]:
    """The work of a kernel's backward over these queries."""
    sums = aten.temporary(f.tape, dims[:-1], FP32, "kernel: softmax sums", Basis.ASSUMED)
    return [sums, aten.temporary(f.tape, dims, FP32, "kernel: sums of query gradients", Basis.ASSUMED)]


def _ring(f: Frame, engine: Engine, qkv: Heads) -> int:
    """Keys and values go round: every step's are received in a buffer of its own, and every step's output is kept
    until all are there. The last received are saved."""
    t, (q, k, _) = f.tape, qkv
    wide = FP32 if at_least(engine.release, CHANGES.wide_steps) else t.dtype[q]
    made = _Made(f)
    made.make(_both(t.dims[k]), t.dtype[k], "keys and values received", engine.ranks - 1)
    made.make(t.dims[q], wide, "output of a step", engine.ranks)
    made.make(t.dims[q][:-1], FP32, "logsumexp of a step", engine.ranks)
    made.make(t.dims[q], FP32, "sum of outputs")
    last = t.fresh(_both(t.dims[k]), t.dtype[k], False, "keys and values of another rank")
    out = t.fresh(t.dims[q], t.dtype[q], True, "output")
    sums = t.fresh(t.dims[q][:-1], FP32, False, "logsumexp")
    apart = at_least(engine.release, CHANGES.apart)
    kept = t.fresh(t.dims[q], t.dtype[q], False, "output as it is saved") if apart else out
    outs = (out, last, sums, kept) if apart else (out, last, sums)
    t.run(Prim("ring attention", qkv, outs, (q, last, kept, sums), _ring_back(f, engine, qkv), tuple(made.all)))
    t.end([value for value in outs if value != out])
    return out


def _ring_back(f: Frame, engine: Engine, qkv: Heads) -> tuple[Step, ...]:
    t, (q, k, _) = f.tape, qkv
    buffers = _Made(f).make(_both(t.dims[k]), t.dtype[k], "keys, values and gradients received", RING.buffers)
    parts = _Made(f)
    for one in qkv:
        parts.make(t.dims[one], t.dtype[one], "gradient of a step")
    inside = [*parts.all, *_kernel(f, engine, t.dims[q])]
    return (Step(Code.GRAD, 0), *_born(buffers), *_born(inside), *_dead(inside), *GRADS[1:], *_dead(buffers))


def _gathered(f: Frame, engine: Engine, qkv: Heads) -> int:
    """Keys and values of all ranks are gathered and put in order, forward and again backward; queries are read in
    two parts."""
    t, (q, k, v) = f.tape, qkv
    gathered = _Made(f)
    for one in (k, v):
        gathered.make(longer(t.dims[one], engine.ranks), t.dtype[one], "gathered keys or values", RING.steps)
    out = t.fresh(t.dims[q], t.dtype[q], True, "output")
    sums = t.fresh(t.dims[q][:-1], FP32, False, "logsumexp")
    apart = not at_least(engine.release, CHANGES.apart)
    kept = t.fresh(t.dims[q], t.dtype[q], False, "outputs of steps") if apart else out
    outs = (out, sums, kept) if apart else (out, sums)
    again, slopes, inside = _Made(f), _Made(f), _Made(f)
    for one in (k, v):
        again.make(longer(t.dims[one], engine.ranks), t.dtype[one], "gathered keys or values")
        slopes.make(longer(t.dims[one], engine.ranks), t.dtype[one], "gradient of gathered keys or values")
        inside.make(longer(t.dims[one], engine.ranks), t.dtype[one], "gradient of a step")
    work = [*inside.all, *_kernel(f, engine, t.dims[q])]
    steps = (
        *_born(again.all), Step(Code.GRAD, 0), *_born(slopes.all), *_born(work), *_dead(work), *GRADS[1:],
        *_dead([*again.all, *slopes.all]),
    )  # fmt: skip
    t.run(Prim("gathered attention", qkv, outs, (q, k, v, kept, sums), steps, tuple(gathered.all)))
    t.end([value for value in outs if value != out])
    return out


def _by_heads(f: Frame, engine: Engine, qkv: Heads) -> int:
    """All tokens of a part of the heads: queries, keys and values are sent, put in order and saved; the output is saved
    before it is sent back."""
    t, q = f.tape, qkv[0]
    sent = _Made(f)
    for one in qkv:
        sent.make(t.dims[one], t.dtype[one], "copy by heads")
    received = sent.make(t.dims[q], t.dtype[q], "received")
    parts = [t.fresh(t.dims[one], t.dtype[one], False, "of all tokens") for one in qkv]
    kept = t.fresh(t.dims[q], t.dtype[q], False, "output of all tokens")
    sums = t.fresh(t.dims[q][:-1], FP32, False, "logsumexp")
    out = t.fresh(t.dims[q], t.dtype[q], True, "output")
    assert received
    outs = (out, *parts, kept, sums)
    t.run(Prim("attention by heads", qkv, outs, (*parts, kept, sums), _by_heads_back(f, engine, qkv), tuple(sent.all)))
    t.end([value for value in outs if value != out])
    return out


def _by_heads_back(f: Frame, engine: Engine, qkv: Heads) -> tuple[Step, ...]:
    t, q = f.tape, qkv[0]
    sent = _Made(f).make(t.dims[q], t.dtype[q], "output's gradient sent", len(("copy", "received")))
    arrived = _Made(f).make(t.dims[q], t.dtype[q], "output's gradient of all tokens")
    made, ordered, received = _Made(f), _Made(f), _Made(f)
    for one in qkv:
        made.make(t.dims[one], t.dtype[one], "gradient of all tokens")
        ordered.make(t.dims[one], t.dtype[one], "gradient in order")
    received.make(t.dims[qkv[-1]], t.dtype[q], "gradient received")
    work = _kernel(f, engine, t.dims[q])
    return (
        *_born(sent), *_born(arrived), *_dead(sent), *_born(made.all), *_born(work), *_dead(work), *_born(ordered.all),
        *GRADS, *_born(received.all), *_dead([*received.all, *ordered.all, *made.all, *arrived]),
    )  # fmt: skip
