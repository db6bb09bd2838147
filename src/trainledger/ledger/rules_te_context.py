"""Attention over a sequence that is spread over context-parallel ranks: by a ring, by gathering, or by heads.

Source: transformer_engine/pytorch/attention/dot_product_attention/context_parallel.py (2.5 to 2.17). The rank counted
is the one whose tokens see all others', which attends to whole blocks at each step of the ring.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims, stretched
from trainledger.facts.dtypes import FP32, DType
from trainledger.facts.transformer_engine import CHANGES, RING
from trainledger.facts.versions import at_least
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.fused import cudnn_workspace
from trainledger.ledger.mega import Engine
from trainledger.ledger.tape import Code, Prim, Step, Tape, born, dead

Heads = tuple[int, int, int]  # queries, keys, values
GRADS = tuple(Step(Code.GRAD, at) for at in range(len(("queries", "keys", "values"))))


def exchanged(f: Frame, engine: Engine, qkv: Heads) -> int:
    """Attention of this rank's tokens to all; queries, keys and values are contiguous."""
    match engine.exchange:
        case "a2a":
            return _by_heads(f, engine, qkv)
        case "all_gather":
            return _gathered(f, engine, qkv)
        case "a2a+p2p" if engine.inner > 1:
            return _in_two_ways(f, engine, qkv)
        case _:
            return _ring(f, engine, qkv)


class _Made:
    """Temporaries of one function, by name; those made from now on are on `stream`."""

    def __init__(self, f: Frame) -> None:
        self.f, self.all, self.stream = f, list[int](), 0

    def make(self, dims: Dims, dtype: DType, name: str, count: int = 1) -> list[int]:
        made = [aten.temporary(self.f.tape, dims, dtype, f"{name} {at}" if at else name) for at in range(count)]
        for one in made:
            self.f.tape.storages[one] = self.f.tape.storages[one]._replace(stream=self.stream)
        self.all += made
        return made

    def send(self, dims: Dims, dtype: DType, name: str) -> None:
        """One that a communicator's stream reads or writes."""
        (one,) = self.make(dims, dtype, name)
        self.f.tape.storages[one] = self.f.tape.storages[one]._replace(sent=True)


def _both(dims: Dims) -> Dims:
    """Keys and values as one tensor."""
    return (Axis(Dim.ELEMENTS, len(("keys", "values"))), *dims)


def _kernel(f: Frame, engine: Engine, dims: Dims) -> list[int]:
    """The work of a kernel's backward over these queries."""
    return [cudnn_workspace(f.tape, dims)]


def _ring(f: Frame, engine: Engine, qkv: Heads) -> int:
    """Keys and values go round: every step's are received in a buffer of its own, and every step's output is kept
    until all are there. Every second step is on another stream. The last received are saved."""
    t, (q, k, _) = f.tape, qkv
    made = _steps(f, engine.ranks, qkv)
    last = t.fresh(_both(t.dims[k]), t.dtype[k], False, "keys and values of another rank")
    out = t.fresh(t.dims[q], t.dtype[q], True, "output")
    sums = t.fresh(t.dims[q][:-1], FP32, False, "logsumexp")
    apart = at_least(engine.release, CHANGES.apart)
    kept = t.fresh(t.dims[q], t.dtype[q], False, "output as it is saved") if apart else out
    outs = (out, last, sums, kept) if apart else (out, last, sums)
    t.run(Prim("ring attention", qkv, outs, (q, last, kept, sums), _ring_back(f, engine, qkv), tuple(made.all)))
    t.end([value for value in outs if value != out])
    return out


def _steps(f: Frame, ranks: int, qkv: Heads) -> _Made:
    """What the steps of a ring over these ranks make, and the sum of their outputs."""
    t, (q, k, _) = f.tape, qkv
    made = _Made(f)
    made.send(_both(t.dims[k]), t.dtype[k], "keys and values sent")
    for step in range(ranks):
        made.stream = step % len((0, RING.stream)) * RING.stream
        if step < ranks - 1 - 1:
            made.send(_both(t.dims[k]), t.dtype[k], f"keys and values received in step {step}")
        made.make(t.dims[q], t.dtype[q], f"output of step {step}")
        made.make(t.dims[q][:-1], FP32, f"logsumexp of step {step}")
    made.stream = 0
    made.make(t.dims[q], FP32, "sum of outputs")
    return made


def _in_two_ways(f: Frame, engine: Engine, qkv: Heads) -> int:
    """By heads among the nearest ranks, then by a ring among groups of these; the sum of outputs is exchanged back in
    fp32."""
    t = f.tape
    q, k, v = parts = _exchanged_heads(f, qkv)
    made = _steps(f, engine.ranks // engine.inner, parts)
    last = t.fresh(_both(t.dims[k]), t.dtype[k], False, "keys and values of another rank")
    total = t.fresh(t.dims[q], FP32, True, "output in fp32")
    sums = t.fresh(t.dims[q][:-1], FP32, False, "logsumexp")
    apart = at_least(engine.release, CHANGES.apart)
    kept = t.fresh(t.dims[q], t.dtype[q], False, "output as it is saved") if apart else None
    more = () if kept is None else (kept,)
    again = [] if apart else _Made(f).make(t.dims[q], t.dtype[q], "output of all tokens")
    steps = (*born(*again), *_ring_back(f, engine, parts), *dead(*again))
    t.run(Prim("ring attention", parts, (total, last, sums, *more), (q, last, sums, *more), steps, tuple(made.all)))
    back = _Made(f)
    back.make(t.dims[q], FP32, "output sent", len(("copy", "received")))
    back.stream = RING.stream
    back.make(t.dims[q], FP32, "output received")
    out = t.fresh(t.dims[qkv[0]], t.dtype[q], True, "output")
    t.run(Prim("exchange back", (total,), (out,), () if apart else (out,), _sent(f, q), tuple(back.all)))
    t.end([q, k, v, total, last, sums, *more])
    return out


def _sent(f: Frame, q: int) -> tuple[Step, ...]:
    """A gradient of the output exchanged to the ranks that have all of its tokens."""
    t, made = f.tape, _Made(f)
    sent = made.make(t.dims[q], t.dtype[q], "output's gradient sent", len(("copy", "received")))
    made.stream = RING.stream
    arrived = made.make(t.dims[q], t.dtype[q], "output's gradient of all tokens")
    return (*born(*sent), *born(*arrived), *dead(*sent), *(Step(Code.GIVE, 0, one) for one in arrived))


def _exchanged_heads(f: Frame, qkv: Heads) -> Heads:
    """Queries, keys and values of more tokens and fewer heads; their gradients come back the same way."""
    t, sent, ordered, beside = f.tape, _Made(f), _Made(f), _Made(f)
    beside.stream = RING.stream
    for one in qkv:
        sent.make(t.dims[one], t.dtype[one], "copy by heads")
        ordered.make(t.dims[one], t.dtype[one], "gradient in order")
    sent.make(t.dims[qkv[0]], t.dtype[qkv[0]], "received")
    q, k, v = (_beside(t, t.fresh(t.dims[one], t.dtype[one], True, "of more tokens")) for one in qkv)
    grads = [beside.make(t.dims[one], t.dtype[one], "gradient")[0] for one in qkv]
    given = (Step(Code.GIVE, at, one) for at, one in enumerate(grads))
    steps = (*born(*ordered.all), *born(*grads), *dead(*ordered.all), *given)
    t.run(Prim("exchange heads", qkv, (q, k, v), (), steps, tuple(sent.all)))
    return q, k, v


def _ring_back(f: Frame, engine: Engine, qkv: Heads) -> tuple[Step, ...]:
    t, (q, k, _) = f.tape, qkv
    dims = (Axis(Dim.ELEMENTS, len(("keys and values", "their gradients"))), *_both(t.dims[k]))
    buffers = _Made(f).make(dims, t.dtype[k], "keys, values and gradients received", RING.buffers)
    parts = _Made(f)
    for one in qkv:
        parts.make(t.dims[one], t.dtype[one], "gradient of a step")
    inside = [*parts.all, *_kernel(f, engine, t.dims[q])]
    return (Step(Code.GRAD, 0), *born(*buffers), *born(*inside), *dead(*inside), *GRADS[1:], *dead(*buffers))


def _gathered(f: Frame, engine: Engine, qkv: Heads) -> int:
    """Keys and values of all ranks are gathered and put in order, forward and again backward; queries are read in
    two parts."""
    t, (q, k, v) = f.tape, qkv
    gathered = _Made(f)
    for one in (k, v):
        gathered.make(stretched(t.dims[one], engine.ranks), t.dtype[one], "gathered keys or values", RING.steps)
    out = t.fresh(t.dims[q], t.dtype[q], True, "output")
    sums = t.fresh(t.dims[q][:-1], FP32, False, "logsumexp")
    apart = not at_least(engine.release, CHANGES.apart)
    kept = t.fresh(t.dims[q], t.dtype[q], False, "outputs of steps") if apart else out
    outs = (out, sums, kept) if apart else (out, sums)
    again, slopes, inside = _Made(f), _Made(f), _Made(f)
    for one in (k, v):
        again.make(stretched(t.dims[one], engine.ranks), t.dtype[one], "gathered keys or values")
        slopes.make(stretched(t.dims[one], engine.ranks), t.dtype[one], "gradient of gathered keys or values")
        inside.make(stretched(t.dims[one], engine.ranks), t.dtype[one], "gradient of a step")
    work = [*inside.all, *_kernel(f, engine, t.dims[q])]
    steps = (
        *born(*again.all), Step(Code.GRAD, 0), *born(*slopes.all), *born(*work), *dead(*work), *GRADS[1:],
        *dead(*again.all, *slopes.all),
    )  # fmt: skip
    t.run(Prim("gathered attention", qkv, outs, (q, k, v, kept, sums), steps, tuple(gathered.all)))
    t.end([value for value in outs if value != out])
    return out


def _by_heads(f: Frame, engine: Engine, qkv: Heads) -> int:
    """All tokens of a part of the heads: queries, keys and values are sent, put in order on another stream and saved;
    the output is saved before it is sent back."""
    t, q = f.tape, qkv[0]
    sent = _Made(f)
    for one in qkv:
        sent.make(t.dims[one], t.dtype[one], "copy by heads")
    received = sent.make(t.dims[q], t.dtype[q], "received")
    parts = [_beside(t, t.fresh(t.dims[one], t.dtype[one], False, "of all tokens")) for one in qkv]
    kept = t.fresh(t.dims[q], t.dtype[q], False, "output of all tokens")
    sums = t.fresh(t.dims[q][:-1], FP32, False, "logsumexp")
    out = _beside(t, t.fresh(t.dims[q], t.dtype[q], True, "output"))
    assert received
    outs = (out, *parts, kept, sums)
    t.run(Prim("attention by heads", qkv, outs, (*parts, kept, sums), _by_heads_back(f, engine, qkv), tuple(sent.all)))
    t.end([value for value in outs if value != out])
    return out


def _beside(t: Tape, value: int) -> int:
    """The value, made on the stream beside that of compute."""
    store = t.store[value]
    t.storages[store] = t.storages[store]._replace(stream=RING.stream)
    return value


def _by_heads_back(f: Frame, engine: Engine, qkv: Heads) -> tuple[Step, ...]:
    t, q = f.tape, qkv[0]
    sent = _Made(f).make(t.dims[q], t.dtype[q], "output's gradient sent", len(("copy", "received")))
    made, ordered, beside = _Made(f), _Made(f), _Made(f)
    beside.stream = RING.stream
    arrived = beside.make(t.dims[q], t.dtype[q], "output's gradient of all tokens")
    for one in qkv:
        made.make(t.dims[one], t.dtype[one], "gradient of all tokens")
        ordered.make(t.dims[one], t.dtype[one], "gradient in order")
    received = made.make(t.dims[qkv[-1]], t.dtype[q], "gradient received")
    grads = [beside.make(t.dims[one], t.dtype[one], "gradient")[0] for one in qkv]
    given = tuple(Step(Code.GIVE, at, one) for at, one in enumerate(grads))
    work = _kernel(f, engine, t.dims[q])
    return (
        *born(*sent), *born(*arrived), *dead(*sent), *born(*made.all[:-1]), *born(*work), *dead(*work),
        *born(*ordered.all), *born(*grads), *born(*received), *dead(*received, *ordered.all, *made.all[:-1]),
        *dead(*arrived), *given,
    )  # fmt: skip
