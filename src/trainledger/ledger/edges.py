"""What surrounds the blocks: embedding and tables before them, the head and the loss after them, on tapes."""

from __future__ import annotations

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BOOL, FP32, INT64, DType
from trainledger.ledger import aten
from trainledger.ledger.rules import Frame, lower
from trainledger.ledger.tape import Code, Prim, Step
from trainledger.model.program import Model, Norm


def rotary_tables(frame: Frame, model: Model, dtype: DType) -> None:
    """Cosines and sines of every position, made in fp32 and cast: binds `cos` and `sin` (and other sets).

    Source: transformers/models/llama/modeling_llama.py, LlamaRotaryEmbedding.forward (5.24.0).
    """
    if model.rotary is None:
        return
    tape = frame.tape
    single = Axis(Dim.ONE, 1)  # one batch, one head: broadcast over both
    full = (single, Axis(Dim.SEQUENCE, frame.setting.sequence), single, Axis(Dim.ROPE_DIM, model.rotary.dim))
    half = (*full[:-1], Axis(Dim.ROPE_DIM, model.rotary.dim // len(("cos", "sin"))))
    for name in model.rotary.sets:
        tape.scope = "rotary_emb"
        freqs = tape.run(Prim("mul", (), (tape.fresh(half, FP32, False, "angles"),), (), (), ()))
        both = aten.cat(tape, [freqs, freqs], full, "angles twice")
        waves = []
        for wave in ("cos", "sin"):
            raw = aten.unary(tape, wave, both)
            waves.append(aten.scale(tape, raw, f"{wave} scaled"))
        for wave, value in zip(("cos", "sin"), waves, strict=True):
            tape.scope = f"rotary_emb.{wave}{name}"
            frame.names[f"{wave}{name}"] = aten.to(tape, value, dtype)
        tape.end([freqs, both, *waves])


def causal_mask(frame: Frame, dtype: DType, name: str, boolean: bool) -> None:
    """A mask of every query and key: bool for a fused kernel, additive in `dtype` for eager attention.

    Source: transformers/masking_utils.py, sdpa_mask and eager_mask (5.24.0).
    """
    tape, setting = frame.tape, frame.setting
    rows = (Axis(Dim.BATCH, setting.batch), Axis(Dim.ONE, 1), Axis(Dim.SEQUENCE, setting.sequence))
    dims: Dims = (*rows, Axis(Dim.KEY_SEQUENCE, setting.sequence))
    tape.scope = "attention mask"
    allowed = tape.run(Prim("mask", (), (tape.fresh(dims, BOOL, False, "allowed"),), (), (), ()))
    if boolean:
        frame.names[name] = allowed
        return
    frame.names[name] = tape.run(Prim("where", (allowed,), (tape.fresh(dims, dtype, False, "additive"),), (), (), ()))


def head_program(frame: Frame, model: Model, ending: list[int]) -> None:
    """The last norm, then the names of the model's own forward end, then the head up to the logits."""
    ops = model.head.ops
    inside = 1 if ops and isinstance(ops[0].spec, Norm) else 0
    lower(frame, ops[:inside])
    frame.tape.end(ending)
    lower(frame, ops[inside:])


def cross_entropy(frame: Frame, model: Model, upcast: bool) -> int:
    """Transformers' loss over all logits: shifted labels, (fp32) log-softmax, negative log-likelihood.

    Returns the loss. Source: transformers/loss/loss_utils.py (5.24.0); torch log_softmax and nll_loss save the
    log-probabilities, the target and the total weight.
    """
    tape, setting = frame.tape, frame.setting
    tokens = (Axis(Dim.BATCH, setting.batch), Axis(Dim.SEQUENCE, setting.sequence))
    tape.scope = "loss"
    logits = frame.names["logits"]
    read = aten.to(tape, logits, FP32) if upcast or setting.autocast else logits
    padded = (*tokens[:1], Axis(Dim.SEQUENCE, setting.sequence + 1))
    held = [read]
    target = tape.outside(tokens, INT64, False)
    if model.causal:
        labels = tape.run(Prim("pad", (), (tape.fresh(padded, INT64, False, "padded labels"),), (), (), ()))
        target = tape.run(Prim("copy", (labels,), (tape.fresh(tokens, INT64, False, "shifted labels"),), (), (), ()))
        held += [labels, target]
    log = tape.fresh(tape.dims[read], tape.dtype[read], True, "log-probabilities")
    tape.run(Prim("log_softmax", (read,), (log,), (log,), (Step(Code.GRAD, 0),), ()))
    one = (Axis(Dim.ONE, 1),)
    loss = tape.fresh(one, tape.dtype[read], True, "loss")
    weight = tape.fresh(one, tape.dtype[read], False, "total weight")
    tape.run(Prim("nll_loss", (log, target), (loss, weight), (log, target, weight), (Step(Code.GRAD, 0),), ()))
    tape.end(held)
    tape.end([logits])
    return loss
