"""The flat buffers of Megatron-Core's DistributedDataParallel: where each parameter lies in them, and their bytes.

All trained parameters of one model chunk with the same dtypes lie in one buffer, the last of `named_parameters()`
first; those that expert parallelism spreads have a buffer of their own. A buffer is closed into buckets, each reduced
by one collective. Under the distributed optimizer the weights lie in such a buffer, too, in the same places.
Source: megatron/core/distributed/{distributed_data_parallel,param_and_grad_buffer}.py,
megatron/core/optimizer/{distrib_optimizer,param_layout}.py (core_v0.8.0 to core_v0.19.0).
Collectives read and write the buffers in place: they bring no tensor of their own. With nccl_ub (0.13 on) they are as
large, and come from a pool of NCCL's allocator.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import lcm

from trainledger.facts.dtypes import FP8, FP32, MXFP8, UINT8, DType
from trainledger.facts.megatron_buffers import (
    ALIGNMENT,
    FAST_BUCKETS,
    INSTANCES,
    LAID_OUT_AHEAD,
    LAID_OUT_BY_INSTANCE,
    OTHER_TENSOR_RANKS,
    PADDED_FIRST,
    PROMOTED,
    QUANTISED,
    SHARED_WITH_GRADIENTS,
    SPLIT_AFTER,
)
from trainledger.lines.param_packing import Matrix, packed
from trainledger.lines.shards import rows_of

EVERY = "all"  # the pattern that matches every parameter
Key = tuple[bool, DType, DType, bool]  # experts, dtypes of weights and gradients, no parameter cut


@dataclass(frozen=True, slots=True)
class Parameter:
    """A trained parameter as this rank holds it. `elements`: of its tensor- or expert-parallel part; `dtype`: its own,
    which of an fp8 weight is the one it passes for; `stored`: fp8 or mxfp8 where it is kept so, else None; `expert`:
    of an expert with a buffer of its own (see `experts_apart`), reduced over the expert data-parallel ranks;
    `shared_embedding`: the table that the first and the last pipeline stage both hold; `rows`: of a matrix that an
    optimizer takes whole, which lies in a buffer whose shards cut none (0 of all others)."""

    name: str
    elements: int
    dtype: DType
    stored: DType | None = None
    expert: bool = False
    shared_embedding: bool = False
    rows: int = 0

    @property
    def bytes(self) -> int:
        """Bytes of its data where it is no view of a buffer."""
        return (self.stored or self.dtype).bytes_of(self.elements)


@dataclass(frozen=True, slots=True)
class Wrap:
    """How a chunk is wrapped. `ranks`: data-parallel ranks, context parallelism counted; `expert_ranks`: those of an
    expert; `distributed`: the distributed optimizer; `bucket`: elements at which a bucket is full (None: one bucket);
    `gradients`: the dtype of the gradients' buffer (None: the parameters' own); `fast`: whether buckets are padded for
    NCCL (pad_buckets_for_high_nccl_busbw); `instances`: num_distributed_optimizer_instances; `promoted`: patterns of
    names whose gradients are added up in fp32 tensors of their own (param_name_patterns_for_fp32_local_accumulation);
    `release`: Megatron-Core's, empty where it is not known: the newest."""

    ranks: int
    expert_ranks: int
    distributed: bool = True
    bucket: int | None = None
    gradients: DType | None = FP32
    fast: bool = False
    instances: int = 1
    promoted: tuple[str, ...] = ()
    release: str = ""

    def shards(self, expert: bool) -> int:
        """Ranks over which the optimizer divides a dense, or an expert, buffer: those of one instance."""
        return (self.expert_ranks if expert else self.ranks) // self.instances

    def padded_for(self, expert: bool) -> int:
        """Ranks whose multiple a bucket's size is: in 0.18 those of all instances together."""
        whole = LAID_OUT_AHEAD.holds(self.release) and not LAID_OUT_BY_INSTANCE.holds(self.release)
        return (self.expert_ranks if expert else self.ranks) if whole else self.shards(expert)

    def divisor(self, expert: bool) -> int:
        """Elements whose multiple a bucket's size is."""
        return lcm(self.padded_for(expert), ALIGNMENT.end, *([ALIGNMENT.fast_end] if self.fast else []))


def experts_apart(ep: int, etp: int, tp: int, release: str = "") -> bool:
    """Whether experts' parameters lie in a buffer of their own: spread over `ep` expert-parallel ranks, or (from 0.19
    on) over other tensor-parallel ranks than dense ones."""
    return ep > 1 or (etp != tp and OTHER_TENSOR_RANKS.holds(release))


@dataclass(frozen=True, slots=True)
class Placed:
    """A parameter at elements [start, end) of its buffer, in this bucket."""

    parameter: Parameter
    start: int
    end: int
    bucket: int


@dataclass(frozen=True, slots=True)
class Bucket:
    """Elements [start, end) of a buffer. `unpadded`: of them, without what pads the end (as the log counts them)."""

    start: int
    end: int
    unpadded: int


@dataclass(frozen=True, slots=True)
class Buffer:
    """One flat buffer. `weights`: dtype in which its parameters are stored; `ranks`: over how many the optimizer
    divides it; `distributed`: whether the parameters lie in it; `shared`: whether weights are gathered in the
    gradients' memory; `placed`: in the order of the buffer; `promoted`: what has an fp32 gradient beside it; `whole`:
    no parameter of it is cut."""

    weights: DType
    gradients: DType
    expert: bool
    ranks: int
    distributed: bool
    shared: bool
    placed: tuple[Placed, ...]
    buckets: tuple[Bucket, ...]
    promoted: tuple[Parameter, ...] = ()
    whole: bool = False

    @property
    def name(self) -> str:
        """`bf16 weights, fp32 gradients`, and whether of experts, and of parameters that are not cut."""
        kinds = ", experts" * self.expert + ", whole parameters" * self.whole
        return f"{self.weights.name} weights, {self.gradients.name} gradients{kinds}"

    @property
    def elements(self) -> int:
        """Elements, padding included."""
        return self.buckets[-1].end

    @property
    def unpadded(self) -> int:
        """Elements without what pads the buckets' ends."""
        return sum(bucket.unpadded for bucket in self.buckets)

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights' buffer; 0 where parameters keep their own memory, or share the gradients'."""
        return self.weights.bytes_of(self.elements) if self.distributed and not self.shared else 0

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients' buffer."""
        return self.gradients.bytes_of(self.elements)


def buffers(parameters: Sequence[Parameter], wrap: Wrap) -> tuple[Buffer, ...]:
    """The buffers of one model chunk, from its trained parameters in the order of `named_parameters()`.

    In the order in which they are made. Raises ValueError where Megatron-Core stops, or where its release has no such
    option.
    """
    _check(parameters, wrap)
    found: dict[Key, list[Parameter]] = {}
    for one in parameters:
        whole = bool(one.rows) and wrap.distributed
        key = (one.expert, UINT8 if one.stored else one.dtype, wrap.gradients or one.dtype, whole)
        found.setdefault(key, []).append(one)
    keys = list(found) if LAID_OUT_AHEAD.holds(wrap.release) else sorted(found, key=lambda key: key[0])
    return tuple(_buffer(found[key], wrap, key) for key in keys)


def _check(parameters: Sequence[Parameter], wrap: Wrap) -> None:
    if wrap.instances > 1 and not wrap.distributed:
        raise ValueError("several instances need the distributed optimizer")
    groups = [wrap.ranks, *([wrap.expert_ranks] if any(one.expert for one in parameters) else [])]
    for size in groups:
        if size % wrap.instances:
            raise ValueError(f"{wrap.instances} instances do not divide {size} data-parallel ranks")
    used = (
        (FAST_BUCKETS, wrap.fast),
        (INSTANCES, wrap.instances > 1),
        (PROMOTED, bool(wrap.promoted)),
        (QUANTISED, any(one.stored for one in parameters)),
        (SHARED_WITH_GRADIENTS, any(one.stored == MXFP8 for one in parameters)),
    )
    for since, wanted in used:
        if wanted and not since.holds(wrap.release):
            raise ValueError(f"{since.what}: Megatron-Core has it from {since.release} on")
    for one in parameters:
        if one.stored not in (None, FP8, MXFP8):
            raise ValueError(f"{one.name}: how Megatron-Core packs {one.stored.name} weights is not known here")
    names = [one.name for one in parameters]
    if len(set(names)) < len(names):
        raise ValueError("two parameters have the same name")


def _buffer(group: Sequence[Parameter], wrap: Wrap, key: Key) -> Buffer:
    expert, weights, gradients, whole = key
    placed, buckets = (_packed if whole else _filled)(group, wrap, expert)
    return Buffer(
        weights=weights,
        gradients=gradients,
        expert=expert,
        ranks=wrap.shards(expert),
        distributed=wrap.distributed,
        shared=wrap.distributed and any(one.stored == MXFP8 for one in group),
        placed=tuple(placed),
        buckets=tuple(buckets),
        promoted=tuple(one for one in reversed(group) if _matches(one.name, wrap.promoted)),
        whole=whole,
    )


def _filled(group: Sequence[Parameter], wrap: Wrap, expert: bool) -> tuple[list[Placed], list[Bucket]]:
    filling = _Filling(wrap, expert)
    for one in reversed(group):
        filling.place(one)
    return filling.placed, filling.closed()


def _packed(group: Sequence[Parameter], wrap: Wrap, expert: bool) -> tuple[list[Placed], list[Bucket]]:
    order = group[::-1]
    matrices = [Matrix(one.elements, one.rows) for one in order]
    found = packed(matrices, wrap.padded_for(expert), wrap.divisor(expert), wrap.bucket, wrap.release)
    placed = [
        Placed(order[at], start, start + order[at].elements, number)
        for number, one in enumerate(found)
        for at, start in sorted(one.placed.items(), key=lambda item: item[1])
    ]
    sizes = [sum(order[at].elements for at in one.placed) for one in found]
    return placed, [Bucket(one.start, one.end, size) for one, size in zip(found, sizes, strict=True)]


def _matches(name: str, patterns: Iterable[str]) -> bool:
    return any(pattern == EVERY or fnmatchcase(name, pattern) for pattern in patterns)


class _Filling:
    """A buffer while it is laid out."""

    def __init__(self, wrap: Wrap, expert: bool) -> None:
        self.wrap, self.ranks = wrap, wrap.shards(expert)
        self.end = wrap.divisor(expert)
        self.placed: list[Placed] = []
        self.buckets: list[Bucket] = []
        self.bucket = self.at = 0  # where the open bucket starts, where the next parameter may
        self.open = False

    def place(self, one: Parameter) -> None:
        """The next parameter; a shared embedding has a bucket to itself."""
        own = self.wrap.distributed and one.shared_embedding
        start = self._padded(self.at, ALIGNMENT.start)
        if own:
            start = self._split(start)
        end = start + one.elements
        self.placed.append(Placed(one, start, end, len(self.buckets)))
        self.open, self.at = True, end
        if own or (self.wrap.bucket is not None and end - self.bucket >= self.wrap.bucket):
            self.at = self._close(end)

    def closed(self) -> list[Bucket]:
        """All buckets, the last one closed."""
        if self.open:
            self._close(self.at)
        return self.buckets

    def _close(self, end: int) -> int:
        full = self._padded(end, self.end)
        self.buckets.append(Bucket(self.bucket, full, end - self.bucket))
        self.bucket, self.open = full, False
        return full

    def _split(self, start: int) -> int:
        """Close what is open. Before 0.13 the embedding itself may still begin before its own bucket."""
        release = self.wrap.release
        if SPLIT_AFTER.holds(release):
            return self._close(start) if self.open else start
        if start % self.ranks and PADDED_FIRST.holds(release):
            start = self._padded(start, self.end)
        elif start % self.ranks:
            raise ValueError(f"{self.ranks} ranks do not divide where the shared embedding begins ({start})")
        if self.open:
            self._close(start)
        return start

    def _padded(self, size: int, unit: int) -> int:
        return rows_of(size, unit) * unit if self.wrap.distributed else size
