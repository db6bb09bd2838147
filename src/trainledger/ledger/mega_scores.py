"""Log-probabilities of tokens, their entropy, and values, of Megatron-Core's logits as verl's workers make them.

The model hands logits on in fp32, which are divided by the temperature in place. For an entropy they are copied first:
the loss overwrites the copy, the entropy keeps a softmax of its own, which becomes its gradient.
Source: the row `SCORES` in facts/phases.py.
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.facts.dtypes import FP32
from trainledger.ledger import aten
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Model

LOG_PROBS, WITH_ENTROPY = "log-probs", "log-probs and entropy"
Each = Callable[[int], int]  # of logits in fp32, the loss of every token, made in place


def scores(model: Model, loss: str) -> bool:
    """Whether verl's workers make the loss, whose wrapper lets go of the model's own results."""
    return model.vocab == 1 or loss in (LOG_PROBS, WITH_ENTROPY)


def scored(t: Tape, logits: int, entropy: bool, softmax: Each) -> int:
    """The loss of every token."""
    wide = _wide(t, logits)
    tempered = t.alias(wide)
    t.run(Prim("div_", (wide,), (tempered,), (), (Step(Code.GRAD, 0),), ()))
    if not entropy:
        t.end([wide])
        each = softmax(tempered)
        t.end([tempered])
        return each
    copied = t.fresh(t.dims[tempered], FP32, True, "copy of the logits")
    t.run(Prim("clone", (tempered,), (copied,), (), (Step(Code.PASS, 0),), ()))
    spread = _entropy(t, tempered)
    t.end([wide])
    each = softmax(copied)
    t.end([tempered, copied])
    both = t.fresh(t.dims[each], FP32, True, "loss and entropy of every token")
    t.run(Prim("sum", (each, spread), (both,), (), (Step(Code.GRAD, 0), Step(Code.GRAD, 1)), ()))
    t.end([each, spread])
    return both


def valued(t: Tape, values: int) -> int:
    """One number of every token, in fp32."""
    wide = _wide(t, values)
    losses = t.fresh(t.dims[wide][:-1], FP32, True, "loss of every token")
    t.run(Prim("value loss", (wide,), (losses,), (wide,), (Step(Code.GRAD, 0),), ()))
    t.end([wide])
    return losses


def _wide(t: Tape, x: int) -> int:
    """In fp32, as the wrapper of a 16-bit model hands its results on."""
    wide = aten.to(t, x, FP32)
    if wide != x:
        t.end([x])
    return wide


def _entropy(t: Tape, logits: int) -> int:
    """The entropy of every token: the softmax is kept, and becomes the gradient in place."""
    soft = t.fresh(t.dims[logits], FP32, False, "softmax of the entropy")
    out = t.fresh(t.dims[logits][:-1], FP32, True, "entropy of every token")
    steps = (Step(Code.TURN, 0, t.store[soft]),)
    t.run(Prim("vocab-parallel entropy", (logits,), (out, soft), (logits, soft), steps, ()))
    t.end([soft])
    return out
