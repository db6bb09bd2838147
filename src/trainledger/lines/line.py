"""A line: one kind of tensor, its dims, dtype, place, how its number is known, and from where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from trainledger.base.dims import Dims
from trainledger.base.places import Place
from trainledger.base.sources import Basis, Source
from trainledger.facts.dtypes import DType
from trainledger.facts.phases import POLICY

__all__ = ["Account", "Duty", "Line", "Place", "Use"]


class Account(StrEnum):
    """What a line belongs to; the table folds by it."""

    __hash__ = str.__hash__  # Enum's own is written in Python, and accounts are part of a line's key

    WEIGHTS = "weights"
    GRADIENTS = "gradients"
    MASTER = "master_weights"
    OPTIMIZER = "optimizer_states"
    BUFFERS = "buffers"
    BUCKETS = "gradient_buckets"
    GATHERED = "gathered_weights"
    REDUCTION = "gradient_reduction"
    INPUTS = "inputs"
    ACTIVATIONS = "activations"
    RECOMPUTED = "recomputed_activations"
    LOGITS = "logits_and_loss"
    CASTS = "autocast_weight_casts"
    FORWARD = "forward_work"
    BACKWARD = "backward_work"
    CLIP = "clip_work"
    STEP = "optimizer_work"
    WORKSPACE = "workspace"
    CACHE = "kv_cache"
    SYNC = "weight_sync"
    ENDS = "block_ends"


class Duty(StrEnum):
    """What a line's memory is there for."""

    HELD = "held"  # the tensor itself, where it is read and written
    PASSED = "passed"  # a buffer through which what lies elsewhere comes and goes
    SENT = "sent"  # what another stream reads or writes: it is free again when that one is done
    PARKED = "parked"  # states that wait while other roles act, and are back elsewhere when they are updated


class Use(NamedTuple):
    """How a line's memory is used: the CUDA stream on which it is made (0: that of compute); whether copies go in the
    order in which they came, not the last one first; what it is there for."""

    stream: int = 0
    queued: bool = False
    duty: Duty = Duty.HELD


PLAIN = Use()


@dataclass(frozen=True, slots=True)
class Line:
    """A tensor of which some number of equal copies is alive at a moment; `unit` bytes each, as allocated.

    `shards`: ranks that the whole is spread over; `role`: which of the run's models it belongs to, by its name in
    facts/phases.py.
    """

    account: Account
    name: str
    dims: Dims
    dtype: DType
    unit: int
    basis: Basis
    source: Source
    why: str = ""
    place: Place = Place.DEVICE
    shards: int = 1
    use: Use = PLAIN
    role: str = POLICY
