"""What makes layers equal, so that one is walked for all of them: and how each is recomputed."""

from __future__ import annotations

from typing import NamedTuple

from trainledger.facts.dtypes import DType
from trainledger.facts.peft import OWN_CHECKPOINTS
from trainledger.ledger.opening import Job
from trainledger.model.program import Block, Stored

RECOMPUTED = ("full", "reentrant")


class Kind(NamedTuple):
    """What makes two layers equal: their block, whether the model's own name holds the input (the first layer's),
    whether the input needs a gradient, its dtype, how the layer is recomputed, whether its checkpoint makes the
    input need a gradient that needed none: a leaf of the graph; and whether the next layer's graph holds the gradient
    of what this one leaves."""

    block: int
    first: bool
    grad: bool
    dtype: DType
    recompute: str
    asked: bool = False
    lent: bool = False


def kind_of(job: Job, at: tuple[int, int], grad: bool, dtype: DType) -> Kind:
    """The kind of the layer at a position of a block (`at`: both numbers) whose input is of this dtype and needs a
    gradient or not."""
    position, number = at
    recompute = job.run.recompute_of(position)
    if recompute in RECOMPUTED and job.run.software.release(OWN_CHECKPOINTS.package):
        if not trains(job, job.model.blocks[number]):
            return Kind(number, not position, grad, dtype, "none")
        return Kind(number, not position, True, dtype, recompute, not grad)
    return Kind(number, not position, grad, dtype, recompute)


def lends(job: Job, at: tuple[int, int]) -> bool:
    """Whether the graph of the layer at a position of a block outlives its backward, with its input's gradient."""
    position, number = at
    stores = any(isinstance(op.spec, Stored) for op in job.model.blocks[number].ops)
    return stores and job.run.recompute_of(position) == "reentrant"


def trains(job: Job, block: Block) -> bool:
    """Whether something of a layer is trained."""
    return any(job.trained(weight) for weight in block.weights)
