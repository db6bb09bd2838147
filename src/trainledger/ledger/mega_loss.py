"""Megatron-Core's output layer and loss over a vocabulary that is spread over ranks.

Sources: megatron/core/models/common/language_module/language_module.py; tensor_parallel/cross_entropy.py;
fusions/fused_cross_entropy.py (0.19.2); transformer_engine/pytorch/triton/cross_entropy.py (2.11).
"""

from __future__ import annotations

from trainledger.facts.dtypes import BOOL, FP32, INT64
from trainledger.ledger import aten
from trainledger.ledger.frame import Frame
from trainledger.ledger.mega_further import attached, parted, predicted
from trainledger.ledger.mega_run import Chunk
from trainledger.ledger.mega_scores import WITH_ENTROPY, scored, scores, valued
from trainledger.ledger.rules import lower
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Model

IN_PLACE = "vocab-parallel-te"
FUSED = "vocab-parallel-fused"


def closing(frame: Frame, model: Model, loss: str, chunk: Chunk) -> int:
    """The last norm unless another chunk has it, layers for further tokens with their losses, the logits, the loss of
    every token, and their mean; returns the mean."""
    t, names = frame.tape, frame.names
    assert frame.software.mega is not None
    apart = loss == FUSED and frame.software.mega.fusions.compiled

    def each_of(logits: int) -> int:
        t.scope = "loss"
        if scores(model, loss):
            if model.vocab == 1:
                return valued(t, logits)
            return scored(t, logits, loss == WITH_ENTROPY, lambda wide: _softmax(t, wide, False))
        return _in_place(t, logits) if loss == IN_PLACE else _softmax(t, logits, apart)

    norm, head = model.head.ops[:1], model.head.ops[1:]
    if chunk.normed:
        lower(frame, norm)
    if chunk.sends:
        together = predicted(frame, model, chunk.further) if chunk.further else names.pop("h")
        names["h"] = attached(frame, head, parted(frame, together, chunk.sends), each_of)
    lower(frame, head)
    logits = names.pop("logits")
    each = each_of(logits)
    if t.dtype[logits] == FP32 or not scores(model, loss):
        t.end([logits])
    mean = t.fresh((), FP32, True, "mean over tokens")
    t.run(Prim("mean", (each,), (mean,), (), (Step(Code.GRAD, 0),), ()))
    t.end([each])
    return mean


def _softmax(t: Tape, logits: int, apart: bool) -> int:
    """A copy of the logits in fp32 becomes the softmax, which is kept and becomes its own gradient; the engine casts
    that to the logits' dtype. `apart`: compiled functions make another tensor of the copy, and of the gradient."""
    tokens = t.dims[logits][:-1]
    wide = t.dtype[logits] == FP32  # then it is made in place
    softmax = t.alias(logits) if wide else t.fresh(t.dims[logits], FP32, False, "softmax in fp32")
    copies = [aten.temporary(t, t.dims[logits], FP32, name) for name in ("logits in fp32", "gradient in fp32") if apart]
    t.run(Prim("softmax", (logits,), (softmax,), (), (), tuple(copies[:1])))
    mask, places = (t.fresh(tokens, dtype, False, "targets of other ranks") for dtype in (BOOL, INT64))
    t.run(Prim("targets", (), (mask, places), (), (), ()))
    losses = t.fresh(tokens, FP32, True, "loss of every token")
    kept = (softmax, mask, places)
    born, dead = ([Step(code, 0, one) for one in copies[1:]] for code in (Code.BORN, Code.DEAD))
    own = Step(Code.TURN, 0, t.store[softmax]) if wide and not apart else Step(Code.GRAD, 0)
    steps = (*born, own, *dead)
    t.run(Prim("vocab-parallel cross-entropy", (logits,), (losses,), kept, steps, ()))
    t.end(kept)
    return losses


def _in_place(t: Tape, logits: int) -> int:
    """Transformer Engine's kernel writes the gradient over the logits, which are kept for it."""
    tokens = t.dims[logits][:-1]
    losses = t.fresh(tokens, FP32, True, "loss of every token")
    steps = (Step(Code.TURN, 0, t.store[logits]),)
    t.run(Prim("cross-entropy in place", (logits,), (losses,), (logits,), steps, ()))
    return losses
