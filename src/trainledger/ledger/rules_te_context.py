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
from trainledger.ledger.mega import Backend, Engine
from trainledger.ledger.mega_embedding import cut
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
    """Keys and values of all ranks are gathered and put in order, forward and again backward; each half of the queries
    reads its part of them, the second on another stream. FlashAttention's are copied with the sequence first, which is
    what is saved, and each part back. Older releases save the outputs of both halves beside what they hand on."""
    t, (q, k, v) = f.tape, qkv
    copied = engine.backend is Backend.FLASH and f.setting.batch > 1
    saved = [_of(t, one, t.dims[one], "copy, sequence first") if copied else one for one in (k, v)]
    ordered = _in_order(t, saved, engine.ranks)
    out, made, work = t.fresh(t.dims[q], t.dtype[q], True, "output"), list[list[int]](), list[int]()
    for at in range(RING.steps):
        sums = t.fresh(cut(t.dims[q], RING.steps)[:-1], FP32, False, f"logsumexp of half {at}")
        half = t.fresh(cut(t.dims[q], RING.steps), t.dtype[q], False, f"output of half {at}")
        made.append([_beside(t, one) if at else one for one in (sums, half)])
        work += _parts(f, engine, qkv, at) if copied else []
    every = [one for both in made for one in both]
    apart = not at_least(engine.release, CHANGES.apart)
    kept = every if apart else [*(sums for sums, _ in made), out]
    steps = _gathered_back(f, engine, qkv, copied)
    t.run(Prim("gathered attention", (*qkv, *ordered), (out, *every), (q, *saved, *kept), steps, tuple(work)))
    t.end([*ordered, *every, *(one for one in saved if one not in qkv)])
    return out


def _of(t: Tape, x: int, dims: Dims, name: str) -> int:
    """A tensor made of another, without a gradient."""
    out = t.fresh(dims, t.dtype[x], False, name)
    return t.run(Prim(name, (x,), (out,), (), (), ()))


def _in_order(t: Tape, pair: list[int], ranks: int) -> list[int]:
    """Both are gathered before the first is put in order."""
    wholes = [stretched(t.dims[one], ranks) for one in pair]
    raw = [_of(t, one, whole, "gathered") for one, whole in zip(pair, wholes, strict=True)]
    made: list[int] = []
    for one, whole in zip(raw, wholes, strict=True):
        made.append(_of(t, one, whole, "gathered, in order"))
        t.end([one])
    return made


def _parts(f: Frame, engine: Engine, qkv: Heads, at: int) -> list[int]:
    """Copies that a half reads: of its queries, and on the rank in the middle of half of all keys and values."""
    t, (q, *pair), made = f.tape, qkv, _Made(f)
    made.stream = at * RING.stream
    made.make(cut(t.dims[q], RING.steps), t.dtype[q], f"queries of half {at}")
    for one in pair:
        made.make(cut(stretched(t.dims[one], engine.ranks), RING.steps), t.dtype[one], f"keys or values of half {at}")
    return made.all


def _gathered_back(f: Frame, engine: Engine, qkv: Heads, copied: bool) -> tuple[Step, ...]:
    """Gradients of all keys and values are summed from those of each half, which stay until the end; where the halves
    were copied, these are too, the first once the second half runs, whose copies take the names of the first's."""
    t, (q, *pair) = f.tape, qkv
    wholes, raw, ordered, turned = _Made(f), _Made(f), _Made(f), _Made(f)
    for one in pair:
        whole = stretched(t.dims[one], engine.ranks)
        wholes.make(whole, t.dtype[one], "gradient of gathered keys or values")
        raw.make(whole, t.dtype[one], "gathered")
        ordered.make(whole, t.dtype[one], "gathered, in order")
        if copied:
            turned.make(cut(whole, RING.steps), t.dtype[one], "gradient of half 0, sequence first")
    steps, before, every = [*born(*wholes.all, *raw.all)], list[int](), list[int]()
    for old, new in zip(raw.all, ordered.all, strict=True):
        steps += *born(new), *dead(old)
    for at in range(RING.steps):
        read, left = _parts(f, engine, qkv, at) if copied else [], _Made(f)
        left.stream = at * RING.stream
        left.make(cut(t.dims[q], RING.steps), t.dtype[q], f"gradient of queries of half {at}")
        for one in pair:
            part = cut(stretched(t.dims[one], engine.ranks), RING.steps)
            left.make(part, t.dtype[one], f"gradient of keys or values of half {at}")
        kernel = _kernel(f, engine, cut(t.dims[q], RING.steps))
        for one in kernel:
            t.storages[one] = t.storages[one]._replace(stream=left.stream, name=f"{t.storages[one].name} of half {at}")
        steps += *born(*read), *dead(*before), *born(*left.all, *kernel), *dead(*kernel)
        before, every = read, [*every, *left.all]
    gone = (*turned.all, *every, *before, *ordered.all)
    return (Step(Code.GRAD, 0), *steps, *born(*turned.all), *dead(*gone), *GRADS[1:], *dead(*wholes.all))


def _by_heads(f: Frame, engine: Engine, qkv: Heads) -> int:
    """All tokens of a part of the heads: queries, keys and values are sent, put in order on another stream and saved.
    The output is saved before it is sent back; older releases save the one that came back, and send it once more in
    backward."""
    t, q = f.tape, qkv[0]
    sent, apart = _Made(f), at_least(engine.release, CHANGES.unsent)
    for one in qkv:
        sent.make(t.dims[one], t.dtype[one], "copy by heads")
    sent.make(t.dims[q], t.dtype[q], "received")
    parts = [_beside(t, t.fresh(t.dims[one], t.dtype[one], False, "of all tokens")) for one in qkv]
    kept = [t.fresh(t.dims[q], t.dtype[q], False, "output of all tokens")] if apart else []
    if not apart:
        sent.make(t.dims[q], t.dtype[q], "output of all tokens")
    sums = t.fresh(t.dims[q][:-1], FP32, False, "logsumexp")
    out = _beside(t, t.fresh(t.dims[q], t.dtype[q], True, "output"))
    outs, saves = (out, *parts, *kept, sums), (*parts, *(kept or [out]), sums)
    t.run(Prim("attention by heads", qkv, outs, saves, _by_heads_back(f, engine, qkv, apart), tuple(sent.all)))
    t.end([value for value in outs if value != out])
    return out


def _beside(t: Tape, value: int) -> int:
    """The value, made on the stream beside that of compute."""
    store = t.store[value]
    t.storages[store] = t.storages[store]._replace(stream=RING.stream)
    return value


def _by_heads_back(f: Frame, engine: Engine, qkv: Heads, apart: bool) -> tuple[Step, ...]:
    t, q = f.tape, qkv[0]
    made, ordered, beside, gone = _Made(f), _Made(f), _Made(f), _Made(f)
    beside.stream = RING.stream
    arrived = list[int]()
    for name in ("output's gradient",) if apart else ("output", "output's gradient"):
        gone.make(t.dims[q], t.dtype[q], f"{name} sent", len(("copy", "received")))
        arrived += beside.make(t.dims[q], t.dtype[q], f"{name} of all tokens")
    sent = gone.all
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
