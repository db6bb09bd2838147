"""Losses over preferences as TRL's trainers read them off all logits: log-probabilities of tokens, a cross-entropy of
the chosen sequences beside them, what is made for the log, and what the loss function's names hold until it returns.

Source: the rows in facts/preferences_trl.py; transformers/models/llama/modeling_llama.py, forward (4.45.2: fp32 logits
from the model itself); accelerate/utils/operations.py, convert_outputs_to_fp32.
"""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import FP32, INT64, DType
from trainledger.facts.losses import CAUSAL_LOSSES, of_release, plain_loss
from trainledger.facts.preference_row import Cut, Held, Likelihood, Outputs, Picked, Reading
from trainledger.facts.preferences import PAIR
from trainledger.ledger import aten
from trainledger.ledger.chunked_logits import Ended
from trainledger.ledger.frame import Frame, Setting
from trainledger.ledger.losses_log import Shown, metric, weighed
from trainledger.ledger.losses_pairs import log_softmax, sliced
from trainledger.ledger.losses_selective import by_kernel, by_rows
from trainledger.ledger.losses_smoothed import smoothed
from trainledger.ledger.scoring import Scoring
from trainledger.ledger.shown import writes
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Model

ONE: Dims = (Axis(Dim.ONE, 1),)
LATER = (Likelihood.AFTER, Likelihood.COUNTED)
KEPT = "hidden states that the outputs hold"  # begins the names of values in a frame


def shortened(frame: Frame, name: str, tokens: int) -> None:
    """Hidden states of each sequence's last tokens, from which the head makes logits; of several sequences a copy."""
    t = frame.tape
    batch, _, width = t.dims[frame.names[name]]
    read = aten.part(t, frame.names[name], (batch, Axis(Dim.SEQUENCE, tokens), width))
    frame.names[name] = aten.copy(t, read) if batch.size > 1 else read


def read_loss(frame: Frame, model: Model, scoring: Scoring) -> Ended:
    """The loss over the logits bound in the frame, and what the caller holds until it returns."""
    t, reading = frame.tape, scoring.reading
    assert reading is not None
    t.scope = "logits"
    logits, left = _returned(frame, model, reading.wide)
    t.scope = "loss"
    likely = _likelihood(t, logits, True, 0) if reading.likelihood is Likelihood.PART else None
    read = _suffix(t, logits, scoring) if reading.cut.sampled else _cut(t, logits, reading.cut, model.causal)
    picked, *named = _picked(t, read, reading)
    weights = [weighed(t, read, True)] if scoring.weighs and not reading.names else []
    if reading.likelihood in LATER:
        counted = scoring.counted if reading.likelihood is Likelihood.COUNTED else 0
        likely = _likelihood(t, logits, True, counted)
    kept = [logits, *([read] if reading.cut is Cut.COPY else [])] if Held.LOGITS in scoring.held else []
    if reading.likelihood is Likelihood.DROPPED:
        log = _likelihood(t, logits, False, 0)
        kept += [log] if frame.setting.training and kept else []
    shown = Shown(logits, read, reading.cut.viewed, scoring.counted, scoring.ranks)
    picks = metric(t, shown, reading.within)
    kept += picks if Held.PICKED in scoring.held else picks[-1:] if Held.REJECTED in scoring.held else []
    ins = (picked,) if likely is None else (picked, likely)
    out = t.fresh(ONE, FP32, any(t.grad[one] for one in ins), "loss")
    loss = t.run(Prim("sum", ins, (out,), (), tuple(Step(Code.GRAD, at) for at in range(len(ins))), ()))
    for one in scoring.last if scoring.logs else ():
        metric(t, shown, one)
    gone = reading.cut is Cut.SCALED and reading.outputs is Outputs.TAKEN
    t.end([*([] if gone else [logits]), read, picked, *named, *picks, *weights, *_outputs(frame)])
    if scoring.shows is not None:
        writes(t, scoring.shows, logits)
    return Ended(loss, tuple(kept), left=left)


def returned_dtype(setting: Setting, model: Model, made: DType) -> DType:
    """The dtype of the logits that the model's forward hands out, which its head `made` in that one."""
    return FP32 if _early(setting, model) or setting.autocast is not None else made


def _early(setting: Setting, model: Model) -> bool:
    """Whether the model's own forward raises its logits."""
    release = setting.transformers
    return of_release(CAUSAL_LOSSES, release).early and not plain_loss(model.family, release)


def _returned(frame: Frame, model: Model, wide: bool) -> tuple[int, int]:
    """The logits as the model's forward hands them out, or `wide` in fp32, and where on the tape it has returned. Its
    other names end; under autocast logits and hidden states among the outputs are raised after that, and the old ones
    go."""
    t, names = frame.tape, frame.names
    made, old = names["logits"], _outputs(frame)
    inside = aten.to(t, made, FP32) if _early(frame.setting, model) else made
    handed = [*old, names["h"]] if old else []
    t.end([value for value in names.values() if value not in (inside, *handed)])
    left = len(t.prims)
    logits = aten.to(t, inside, returned_dtype(frame.setting, model, t.dtype[made]))
    logits = aten.to(t, logits, FP32) if wide else logits
    kept = {f"{KEPT} {at}": value for at, value in enumerate(handed)}
    for name, value in kept.items() if frame.setting.autocast is not None else ():
        if t.dtype[value] != FP32:
            raised = t.fresh(t.dims[value], FP32, False, "hidden states in fp32")
            kept[name] = t.run(Prim("to", (value,), (raised,), (), (), ()))
    t.end([inside, *handed])
    names.clear()
    names.update(kept)
    return logits, left


def _outputs(frame: Frame) -> list[int]:
    return [value for name, value in frame.names.items() if name.startswith(KEPT)]


def _cut(t: Tape, logits: int, cut: Cut, causal: bool) -> int:
    """The logits without the last token's, where the next ones are learnt; a copy of one sequence's is a view."""
    if cut is Cut.NONE or not causal:
        return logits
    batch, sequence, vocab = t.dims[logits]
    read = aten.part(t, logits, (batch, Axis(Dim.SEQUENCE, sequence.size - 1), vocab))
    return aten.copy(t, read) if cut is Cut.COPY and batch.size > 1 else read


def _suffix(t: Tape, logits: int, scoring: Scoring) -> int:
    """Logits of the tokens that count, cut twice, and divided by the temperature."""
    reading = scoring.reading
    assert reading is not None
    batch, sequence, vocab = t.dims[logits]
    fewer = Axis(Dim.SEQUENCE, sequence.size - 1)
    dims: Dims = (batch, Axis(Dim.SEQUENCE, min(scoring.counted or fewer.size, fewer.size)), vocab)
    if reading.cut is Cut.IN_PLACE:
        return aten.part(t, _divided(t, logits, dims), dims)
    views = [aten.part(t, logits, (batch, fewer, vocab))]
    views.append(aten.part(t, views[0], dims))
    if reading.cut is Cut.SUFFIX:
        return views[-1]
    scaled = aten.scale(t, views[-1], "logits over the temperature")
    t.end(views)
    return scaled


def _divided(t: Tape, logits: int, dims: Dims) -> int:
    """A part of the logits divided in place: backward copies the gradient of the whole, and of that copy the part."""
    out = t.alias(logits)
    t.grad[out] = t.grad[logits]
    work = [aten.temporary(t, dims, t.dtype[logits], f"{name} of what was divided") for name in ("copy", "gradient")]
    born, dead = ([Step(code, 0, one) for one in work] for code in (Code.BORN, Code.DEAD))
    return t.run(Prim("div_", (logits,), (out,), (), (Step(Code.GRAD, 0), *born, *dead), ()))


def _picked(t: Tape, read: int, reading: Reading) -> list[int]:
    """The log-probability of each token; and what else the function names until it returns."""
    if reading.picked is Picked.SMOOTHED:
        return smoothed(t, read)
    if reading.picked is Picked.KERNEL:
        return [by_kernel(t, read)]
    if reading.picked is Picked.ROWS:
        return [by_rows(t, read)]
    log = log_softmax(t, read, reading.cut is Cut.VIEW and t.dims[read][0].size > 1)
    one = (*t.dims[read][:-1], Axis(Dim.ONE, 1))
    index, grad = t.outside(one, INT64, False), t.grad[read]
    picked = t.fresh(one, t.dtype[read], grad, "log-probability of each token")
    return [t.run(Prim("gather", (log, index), (picked,), (index,) if grad else (), aten.GRAD0, ()))]


def _likelihood(t: Tape, logits: int, part: bool, counted: int) -> int:
    """Cross-entropy of the chosen sequences over a contiguous copy of their logits, or of the `counted` tokens of each.
    `part`: of the loss, which is returned; else its graph is let go of, and the log-probabilities that it saved are
    returned."""
    batch, sequence, vocab = t.dims[logits]
    half: Dims = (Axis(batch.dim, batch.size // len(PAIR)), sequence, vocab)
    cut = sliced(t, sliced(t, logits, half), (half[0], Axis(Dim.SEQUENCE, sequence.size - 1), vocab))
    grad = part and t.grad[logits]
    if counted:
        copied = t.fresh((Axis(Dim.TOKENS, half[0].size * counted), vocab), t.dtype[cut], grad, "chosen that count")
        cut = t.run(Prim("index", (cut,), (copied,), (), aten.GRAD0, ()))
    elif half[0].size > 1:
        copied = t.fresh(t.dims[cut], t.dtype[cut], grad, "copy of the chosen logits")
        cut = t.run(Prim("clone", (cut,), (copied,), (), aten.PASS0, ()))
    log = t.fresh(t.dims[cut], t.dtype[cut], grad, "log-probabilities of the chosen")
    t.run(Prim("log_softmax", (cut,), (log,), (log,) if grad else (), aten.GRAD0, ()))
    target = t.outside(t.dims[cut][:-1], INT64, False)
    loss, weight = t.fresh(ONE, FP32, grad, "likelihood"), t.fresh(ONE, FP32, False, "total weight")
    saves = (log, target, weight) if grad else ()
    t.run(Prim("nll_loss", (log, target), (loss, weight), saves, aten.GRAD0, ()))
    return loss if part else log
