"""A head that makes logits chunk by chunk of tokens, and the loss of each chunk: all chunks live until backward.

Sources: litgpt/lora.py, GPT.forward(lm_head_chunk_size), which LoRA's script asks for and that of full training does
not (litgpt/finetune/{lora,full}.py); litgpt/utils.py, chunked_cross_entropy; what Fabric's wrapper
does to a forward's results: lightning/fabric/wrappers.py, convert_output: all of them are cast to fp32, then the first
ones go.
"""

from __future__ import annotations

from typing import NamedTuple

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import FP32, INT64
from trainledger.facts.litgpt import HEAD_CHUNKS
from trainledger.ledger import aten, layers
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Code, Prim, Step, Tape
from trainledger.model.program import Linear, Op

ONE: Dims = (Axis(Dim.ONE, 1),)


class Ended(NamedTuple):
    """How a forward and its loss ended: the loss; what the caller's name for the model's results means; how many
    primitives had run as that name was bound (0: it is bound with the loss's); and as the model's own forward, and the
    autocast region around it, had returned (0: the loss is made within)."""

    loss: int
    outputs: tuple[int, ...] = ()
    bound: int = 0
    left: int = 0


def chunked(frame: Frame, head: Op, whole: bool) -> Ended:
    """Head and loss over chunks of the tokens of every sequence; with `whole`, the loss alone is in chunks."""
    assert isinstance(head.spec, Linear)
    tape = frame.tape
    logits = _logits(frame, head, head.spec, whole)
    bound = len(tape.prims)
    tape.scope = "loss"
    last = tape.dims[logits[-1]]
    shorter = (last[0], Axis(Dim.SEQUENCE, last[1].size - 1), *last[2:])
    if shorter[1].size:
        logits[-1] = aten.part(tape, logits[-1], shorter)
    rows = [_flat(tape, one, copied=one == logits[-1] and last[0].size > 1) for one in logits]
    if whole:
        rows = _split(tape, rows[0])
    losses = [cross_entropy(tape, one) for one in rows]
    tokens = (Axis(Dim.TOKENS, sum(elements(tape.dims[one]) for one in losses)),)
    joined = aten.cat(tape, losses, tokens, "losses of tokens")
    tape.end([*rows, *losses])
    loss = tape.fresh(ONE, FP32, True, "loss")
    tape.run(Prim("sum", (joined,), (loss,), (), (Step(Code.GRAD, 0),), ()))
    return Ended(loss, tuple(logits), bound)


def _logits(frame: Frame, head: Op, spec: Linear, whole: bool) -> list[int]:
    """Logits of each chunk, or of all tokens, cast once all are there."""
    tape, x = frame.tape, frame.names[head.ins[0]]
    batch, sequence, width = tape.dims[x]
    parts = [(batch, Axis(Dim.SEQUENCE, size), width) for size in _sizes(sequence.size)]
    tape.scope = head.name
    given = [x] if whole else aten.chunk(tape, x, parts)
    made = [layers.linear(frame, spec, one, head.dims) for one in given]
    cast = [aten.to(tape, one, FP32) for one in made]
    tape.end(made)
    return cast


def _sizes(tokens: int) -> list[int]:
    return [min(HEAD_CHUNKS.tokens, tokens - at) for at in range(0, tokens, HEAD_CHUNKS.tokens)]


def _split(tape: Tape, logits: int) -> list[int]:
    """Views of so many rows each."""
    rows, vocab = tape.dims[logits]
    return aten.chunk(tape, logits, [(Axis(Dim.TOKENS, size), vocab) for size in _sizes(rows.size)])


def _flat(tape: Tape, logits: int, copied: bool) -> int:
    """Tokens of all sequences as rows; those of a cut chunk are copied where there are several sequences."""
    *tokens, vocab = tape.dims[logits]
    rows = (Axis(Dim.TOKENS, elements(tuple(tokens))), vocab)
    return aten.copy(tape, logits, rows) if copied else aten.view(tape, logits, rows)


def cross_entropy(tape: Tape, logits: int) -> int:
    """The loss of every token: log-probabilities are saved, and the labels."""
    rows = tape.dims[logits][:1]
    log = tape.fresh(tape.dims[logits], tape.dtype[logits], True, "log-probabilities")
    tape.run(Prim("log_softmax", (logits,), (log,), (log,), (Step(Code.GRAD, 0),), ()))
    target = tape.fresh(rows, INT64, False, "labels of a chunk")
    tape.run(Prim("copy", (), (target,), (), (), ()))
    loss = tape.fresh(rows, FP32, True, "losses of a chunk")
    weight = tape.fresh(ONE, FP32, False, "total weight")
    saves = (log, target, weight)
    return tape.run(Prim("nll_loss", (log, target), (loss, weight), saves, (Step(Code.GRAD, 0),), ()))
