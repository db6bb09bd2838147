"""A line: one kind of tensor, its dims, dtype, place, how its number is known, and from where."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.dims import Dims
from trainledger.base.places import Place
from trainledger.base.sources import Basis, Source
from trainledger.facts.dtypes import DType

__all__ = ["Account", "Line", "Place"]


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


@dataclass(frozen=True, slots=True)
class Line:
    """A tensor of which some number of equal copies is alive at a moment; `unit` bytes each, as allocated.

    `shards`: ranks that the whole is spread over; `stream`: the CUDA stream on which it is made (0: that of compute);
    `queued`: copies go in the order in which they came, not the last one first.
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
    stream: int = 0
    queued: bool = False
