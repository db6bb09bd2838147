"""The head and the loss on a tape: over all logits, over chunks of tokens (Liger) or of the
vocabulary (TRL).

Sources: transformers/loss/loss_utils.py; torch log_softmax and nll_loss, which save the log-probabilities, the target
and the total weight; what the fused kernels make is in facts/losses.py.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.losses import CAUSAL_LOSSES, TOKEN_LOSS, of_release, plain_loss
from trainledger.facts.pithtrain import NAME as PITHTRAIN
from trainledger.facts.preference_row import DIVERGENCE, READ
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtune import NAME as TORCHTUNE
from trainledger.ledger import aten, fused_head, losses_torchtitan, losses_torchtune, mega_loss
from trainledger.ledger.chunked_logits import Ended, chunked
from trainledger.ledger.cross_entropy import torch_cross_entropy
from trainledger.ledger.frame import Frame
from trainledger.ledger.losses_distilled import distilled
from trainledger.ledger.losses_pairs import CHOSEN, pair_loss
from trainledger.ledger.losses_parallel import SPREAD, spread_cross_entropy
from trainledger.ledger.losses_read import read_loss, shortened
from trainledger.ledger.mega_run import Chunk
from trainledger.ledger.rules import lower
from trainledger.ledger.scoring import LOGITS, Scoring
from trainledger.ledger.software import FOAK, LIGER
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.counts import has_tuned
from trainledger.model.program import Linear, Model, Op

FULL_FP32, FUSED, CHUNKED = "full-fp32", "fused-linear", losses_torchtitan.CHUNKED
KEPT_CHUNKS = ("litgpt",)  # frameworks whose chunks of logits are all kept for backward


def closing_program(frame: Frame, model: Model, ending: list[int], scoring: Scoring) -> Ended:
    """The last norm, then the names of the model's own forward end, then the head and the loss. Of a model that is not
    trained nothing has a graph."""
    made = _closing(frame, model, ending, scoring)
    if not frame.setting.training:
        frame.tape.grad[:] = [False] * len(frame.tape.grad)
    return made


def _closing(frame: Frame, model: Model, ending: list[int], scoring: Scoring) -> Ended:
    ops, loss = model.head.ops, scoring.loss
    if frame.software.mega is not None:  # Megatron's layers under DeepSpeed's wrappers, on a stage of its own
        frame.tape.end(ending)
        return Ended(mega_loss.closing(frame, model, loss, Chunk((), True, True, normed=True)))
    inside = _inside(model)
    lower(frame, ops[:inside])
    frame.tape.end(ending)
    rest = ops[inside:]
    if scoring.kept:
        head = next(op for op in rest if "logits" in op.outs)
        shortened(frame, head.ins[0], scoring.kept)
    if scoring.form or loss == LOGITS:
        lower(frame, rest)
        return _scripted(frame, model, scoring)
    if frame.software.framework == TORCHTITAN:
        return losses_torchtitan.ended(frame, rest, loss)
    if frame.software.framework == PITHTRAIN:  # its kernel writes the gradient over the logits
        lower(frame, rest)
        logits = frame.names.pop("logits")
        return Ended(
            fast_cross_entropy(frame.tape, logits, frame.tape.outside(frame.tape.dims[logits][:-1], INT64, False))
        )
    # a fused head is the last linear layer and the loss at once; what follows that layer is done inside its kernel
    at = next((i for i, op in enumerate(rest) if isinstance(op.spec, Linear) and "logits" in op.outs), None)
    if loss in (CHUNKED, FUSED) and at is not None and not model.head.pooled:
        lower(frame, rest[:at])
        if loss == CHUNKED and frame.software.framework in KEPT_CHUNKS:
            return chunked(frame, rest[at], not has_tuned(model))
        if loss == CHUNKED and frame.software.framework == TORCHTUNE:
            return Ended(losses_torchtune.chunked(frame, rest[at]))
        return Ended(_fused(frame, rest[at], scoring))
    if frame.software.framework == TORCHTUNE:
        return losses_torchtune.full(frame, rest)
    lower(frame, rest)
    if loss == SPREAD:
        return Ended(spread_cross_entropy(frame))
    made = cross_entropy(frame, model, loss == FULL_FP32)
    return Ended(made, (frame.names["logits"],))


def _scripted(frame: Frame, model: Model, scoring: Scoring) -> Ended:
    """What a script makes of all logits: nothing, a divergence from a teacher's, a loss over preferences."""
    if scoring.loss == LOGITS:
        return Ended(frame.names[LOGITS])
    if scoring.form == DIVERGENCE:
        return Ended(distilled(frame, scoring.counted))
    if scoring.form == READ:
        return read_loss(frame, model, scoring)
    loss = pair_loss(frame.tape, frame.names, scoring.loss)
    return Ended(loss, tuple(frame.names[name] for name in (LOGITS, CHOSEN) if name in frame.names))


def _inside(model: Model) -> int:
    """How many of the head's first operations belong to the base model's own forward: those under its name."""
    base = model.embeddings[0].name.partition(".")[0] + "."
    return next((at for at, op in enumerate(model.head.ops) if not op.name.startswith(base)), len(model.head.ops))


def _fused(frame: Frame, head: Op, scoring: Scoring) -> int:
    tape, software = frame.tape, frame.software
    assert isinstance(head.spec, Linear)
    tape.scope = head.name
    inputs = fused_head.Inputs(
        frame.names[head.ins[0]], frame.need(head.spec.weight), frame.param(head.spec.bias), frame.setting.batch
    )
    tape.scope = "loss"
    if scoring.loss == CHUNKED or (LIGER not in software.kernels and software.release("trl")):
        return fused_head.by_vocabulary(tape, inputs, scoring.counted, scoring.results)
    return fused_head.by_tokens(tape, inputs, software.liger)


def cross_entropy(frame: Frame, model: Model, upcast: bool) -> int:
    """The loss over all logits: (fp32) log-softmax and negative log-likelihood; returns the loss.

    Next-token losses shift labels or, in older releases, logits; others (masked tokens, classes) shift nothing.
    """
    tape = frame.tape
    release = frame.software.release("transformers")
    row = of_release(CAUSAL_LOSSES, release)
    plain = plain_loss(model.family, release)
    upcast = upcast and (model.causal or model.head.raised) and not model.head.pooled and not plain
    tape.scope = "loss"
    output = frame.names["logits"]
    if upcast and row.early and model.causal:
        tape.scope = "logits"
        output = frame.names["logits"] = aten.to(tape, output, FP32)
        tape.scope = "loss"
    read = aten.to(tape, output, FP32) if upcast else output
    held = [read]
    labels: Dims = tape.dims[read][:-1]
    target = tape.outside(labels, INT64, False)
    if model.causal and not model.head.pooled:
        read, *named = (_shifted_logits if row.shifts else _shifted_labels)(tape, read, target)
        target = named[-1]
        held += [read, *named]
    fast = (upcast or plain) and model.causal and FOAK in frame.software.kernels
    own = frame.software.framework in TOKEN_LOSS.frameworks and not upcast
    over = fast or frame.software.framework in TOKEN_LOSS.in_place
    loss = fast_cross_entropy(tape, read, target, over) if fast or own else torch_cross_entropy(tape, read, target)
    tape.end([*held, output])
    return loss


def _shifted_labels(tape: Tape, logits: int, labels: int) -> list[int]:
    """Labels padded by one and read from the second on: a copy unless there is but one sequence.

    Returns the logits and what the loss function's names hold, the target last.
    """
    batch, sequence = tape.dims[labels]
    padded = tape.fresh((batch, Axis(Dim.SEQUENCE, sequence.size + 1)), INT64, False, "padded labels")
    tape.run(Prim("pad", (labels,), (padded,), (), (), ()))
    if batch.size > 1:
        shifted = tape.fresh((batch, sequence), INT64, False, "shifted labels")
    else:
        shifted = tape.alias(padded, (batch, sequence))
    tape.run(Prim("copy", (padded,), (shifted,), (), (), ()))
    return [logits, padded, shifted]


def _shifted_logits(tape: Tape, logits: int, labels: int) -> list[int]:
    """Logits without the last token and labels without the first: copies unless there is but one sequence."""
    batch, sequence, vocab = tape.dims[logits]
    fewer = Axis(Dim.SEQUENCE, sequence.size - 1)
    shifted = aten.part(tape, logits, (batch, fewer, vocab))
    if batch.size == 1:
        return [shifted, tape.outside((batch, fewer), INT64, False)]
    shifted = aten.copy(tape, shifted)
    target = tape.fresh((batch, fewer), INT64, False, "shifted labels")
    return [shifted, tape.run(Prim("copy", (labels,), (target,), (), (), ()))]


def fast_cross_entropy(tape: Tape, logits: int, target: int, over: bool = True) -> int:
    """A kernel that saves the logits and their sums alone; `over`: their gradient is written over them.

    Source: fms_acceleration_foak/kernels/unsloth/cross_entropy_loss.py (0.7.4), Fast_CrossEntropyLoss; the row of
    flash-attn's in facts/losses.py.
    """
    rows = (Axis(Dim.TOKENS, elements(tape.dims[logits][:-1])),)
    losses = tape.fresh(rows, FP32, True, "loss of each token")
    lse = tape.fresh(rows, FP32, False, "logsumexp")
    turned = Step(Code.TURN, 0, tape.store[logits]) if over else Step(Code.GRAD, 0)
    tape.run(Prim("fast_cross_entropy", (logits, target), (losses, lse), (logits, lse, target), (turned,), ()))
    loss = tape.fresh((Axis(Dim.ONE, 1),), FP32, True, "loss")
    return tape.run(Prim("sum", (losses,), (loss,), (), (Step(Code.GRAD, 0),), ()))
