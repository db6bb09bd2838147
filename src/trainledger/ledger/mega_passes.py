"""What passes between pieces and stages of a chunk, and a micro-batch's pass through one, under Megatron-Core."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainledger.base.dims import Dims, stretched
from trainledger.facts.code_read import AUTOGRAD
from trainledger.facts.dtypes import DType
from trainledger.ledger.mega import Mega
from trainledger.ledger.mega_embedding import cut
from trainledger.ledger.mega_run import Chunk
from trainledger.ledger.opening import Job
from trainledger.lines.line import Account
from trainledger.lines.moments import BACKWARD, FORWARD
from trainledger.lines.stream import Events, Segment

HIDDEN, SLOPE = "hidden states", "gradient of hidden states"


@dataclass(frozen=True, slots=True)
class Edges:
    """Lines that pass between pieces and stages: hidden states and their gradient."""

    hidden: int
    slope: int
    dims: Dims
    dtype: DType


@dataclass(frozen=True, slots=True)
class Pass:
    """A micro-batch through a chunk: segments forward and backward, and after how many of a segment's events its first
    matrix product has returned. `after`: both where the chunk's last backward left a graph that they let go."""

    forward: tuple[Segment, ...]
    backward: tuple[Segment, ...]
    products: Mapping[Events, int]
    after: tuple[tuple[Segment, ...], tuple[Segment, ...]]


def masked(made: Pass, mask: int | None, saved: bool = False) -> Pass:
    """A pass whose batch comes with a mask, which the forward's caller holds until it returns; `saved`: layers keep it
    for their backward."""
    if mask is None:
        return made
    first, last = Segment(FORWARD, (mask + 1,)), Segment(BACKWARD if saved else FORWARD, (-mask - 1,))
    ahead, behind = ((), (last,)) if saved else ((last,), ())
    now, later = ((first, *one, *ahead) for one in (made.forward, made.after[0]))
    left, gone = ((*one, *behind) for one in (made.backward, made.after[1]))
    return replace(made, forward=now, backward=left, after=(later, gone))


@dataclass(frozen=True, slots=True)
class Borders:
    """What a chunk is given, and what it hands on."""

    came: Edges
    goes: Edges


def borders_of(job: Job, chunk: Chunk) -> Borders:
    """Hidden states of the model, and of further tokens where a chunk before has layers for these, side by side."""
    return Borders(edges_of(job, 1 + chunk.given), edges_of(job, 1 + chunk.sends))


def edges_of(job: Job, tokens: int = 1) -> Edges:
    """The lines between layers; `tokens`: of how many predictions they are the hidden states."""
    mega, setting = job.run.software.mega, job.run.setting
    assert mega is not None
    whole = job.frame().dims((job.model.hidden,))
    dims = stretched(cut(whole, mega.ranks), tokens)
    hidden, slope = (
        job.book.tensor(account, name, dims, setting.weights, AUTOGRAD)
        for account, name in ((Account.ACTIVATIONS, HIDDEN), (Account.BACKWARD, SLOPE))
    )
    return Edges(hidden, slope, dims, setting.weights)


def mega_of(job: Job) -> Mega:
    """How Megatron runs this job's layers."""
    assert job.run.software.mega is not None
    return job.run.software.mega
