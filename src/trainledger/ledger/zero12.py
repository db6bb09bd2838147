"""What DeepSpeed's ZeRO-1 and -2 allocate around gradients: reduce buckets, their flat copies, this rank's gradients.

Stage 2 takes each gradient as it comes: copied into the bucket, reduced with it, and kept (whole) where this rank owns
a piece of its parameter. Stage 1 lets gradients gather until the last micro-batch, then does the same.
Source: deepspeed/runtime/zero/stage_1_and_2.py (0.9.5 to 0.19.8): setup_buckets,
reduce_independent_p_g_buckets_and_remove_grads, average_tensor, copy_grads_in_partition,
independent_gradient_partition_epilogue. Streams move only what is reserved.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainledger.base.dims import Axis, Dim
from trainledger.facts.deepspeed import BUCKETS_AT_HOOK, DEEPSPEED
from trainledger.facts.dtypes import FP32, FP64, DType
from trainledger.ledger.arrange import Hooks
from trainledger.ledger.blocks import Arrived, Walked
from trainledger.ledger.book import Book, Made
from trainledger.ledger.registered import Slot
from trainledger.ledger.zero import Group, Zero, fillings, reduction, slices
from trainledger.lines.line import Account
from trainledger.lines.stream import Events

VIEW = -1  # a gradient whose elements lie in a buffer
REDUCTION = 1  # the stream of reductions that overlap


class Stay:
    """What stays between micro-batches: each parameter's gradient (a line or VIEW); buckets' lines; lines of the
    gradients of this rank that the step reads; whether any micro-batch left some."""

    __slots__ = ("again", "buckets", "grads", "kept")

    def __init__(self) -> None:
        self.grads: dict[Slot, int] = {}
        self.buckets: list[int] = []
        self.kept: list[int] = []
        self.again = False


class Zero12(Hooks):
    """One micro-batch; `last`: it is the step's last one, at whose end gradients are whole."""

    def __init__(self, book: Book, how: Zero, groups: Sequence[Group], stay: Stay, last: bool) -> None:
        self.book, self.how, self.groups, self.stay, self.last = book, how, groups, stay, last
        self.slots = {(slot.at, slot.weight): slot for group in groups for slot in group.slots}
        self.mine = {slot for group in groups for slot in group.owned(how.rank or 0)}
        self.bucket: list[Slot] = []
        self.filled = 0
        self.started = False
        self.reduced: list[Slot] = []  # whose gradients go with the next reduction
        self.own: int | None = None  # the buffer of this micro-batch's gradients of this rank

    # ---- the order of calls

    def behind(self, at: int) -> Events:
        """Older releases make the buckets before the loss runs backward."""
        first, self.started = not self.started, True
        return tuple(self._buckets()) if first and not BUCKETS_AT_HOOK.holds(self.how.version) else ()

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """The hook of each gradient as it comes."""
        events: dict[int, Events] = {}
        for one in walked.arrived:
            events[one.at] = (*events.get(one.at, ()), *self._hook(at, one))
        return events

    def ended(self) -> Events:
        """What is left is reduced; stage 1 starts only here."""
        events: list[int] = []
        if self.how.stage == 1:
            if not self.last:
                return ()
            if not self.how.overlap:
                for group in self.groups:
                    for slot in group.slots:
                        events += self._take(slot)
        return (*events, *self._reduce(), *self._epilogue())

    # ---- one gradient

    def _hook(self, at: int, one: Arrived) -> list[int]:
        slot = self.slots.get((at, one.weight)) or self.slots.get((0, one.weight))
        if slot is None:
            return []
        events: list[int] = []
        if self.how.stage == 1 and self.how.dtypes.wide:
            events = self._accumulated(slot, one.line)
        else:
            self.stay.grads.setdefault(slot, one.line)
        if not self.how.contiguous:
            self.book.queue(one.line)  # reduced in the order in which they come, of many layers at once
        events += self._buckets()
        if self.how.stage > 1 or (self.how.overlap and self.last):
            events += self._take(slot)
        return events

    def _accumulated(self, slot: Slot, line: int) -> list[int]:
        """In another dtype gradients are added up beside the parameter, and let go of."""
        if slot in self.stay.grads:
            return [-line - 1]
        dims, dtype = slot.weight.dims, self.how.dtypes.accumulate
        name = f"accumulated gradient of {slot.name}"
        made = self.book.tensor(Account.GRADIENTS, name, dims, dtype, DEEPSPEED.source)
        self.stay.grads[slot] = made
        return [made + 1, -line - 1]

    def _buckets(self) -> list[int]:
        """The buckets of this backward, where they are not there yet: two where reductions overlap."""
        if self.stay.buckets or not self.how.contiguous:
            return []
        names = ("reduce bucket", "second reduce bucket")[: 1 + self.how.overlap]
        self.stay.buckets = [reduction(self.book, name, self.how.bucket, (self.how.came, 0)) for name in names]
        return [line + 1 for line in self.stay.buckets]

    def _take(self, slot: Slot) -> list[int]:
        """Copy a gradient into the bucket, which is reduced first where it would overflow; larger ones stay."""
        events: list[int] = []
        if self.filled + slot.size > self.how.bucket:
            events += self._reduce()
        if self.how.contiguous and slot.size <= self.how.bucket:
            events += self._dropped(slot)
            self.stay.grads[slot] = VIEW
        self.bucket.append(slot)
        self.filled += slot.size
        return events

    def _dropped(self, slot: Slot) -> list[int]:
        line = self.stay.grads.get(slot, VIEW)
        return [] if line == VIEW else [-line - 1]

    # ---- one bucket

    def _reduce(self) -> list[int]:
        events = [*self._cleared(), *self._averaged()]
        for slot in self.bucket:
            if self.how.offload:
                events += self._offloaded(slot)
            elif slot in self.mine:
                events += self._copied(slot)
            elif self.how.stage > 1 and self.how.overlap and not self.how.contiguous:
                self.reduced.append(slot)
            elif self.how.stage > 1:
                events += self._dropped(slot)
                self.stay.grads.pop(slot, None)
        self.bucket, self.filled = [], 0
        return events

    def _cleared(self) -> list[int]:
        """Gradients of other ranks' parts that the reduction before, on its own stream, may have been reading."""
        events: list[int] = []
        for slot in self.reduced:
            events += self._dropped(slot)
            self.stay.grads.pop(slot, None)
        self.reduced = []
        return events

    def _averaged(self) -> list[int]:
        """The flat copies in which a bucket is reduced: none of a single slice, unless it is cast."""
        if not self.bucket:
            return []
        how = self.how
        if how.contiguous and how.scatter:
            cut = [size for _, size in slices(self.bucket, self.groups, not how.dtypes.wide)]
            turns = list(fillings(cut, how.bucket))
        elif how.contiguous:
            turns = [(self.filled,)]
        else:
            turns = list(fillings([slot.size for slot in self.bucket], self.filled))
        events: list[int] = []
        for turn in turns:
            stream = REDUCTION if how.overlap else 0
            made = (
                [reduction(self.book, "reduce bucket, by owner", sum(turn), (self.how.came, stream))]
                if turn[1:]
                else []
            )
            if how.dtypes.reduce != how.came:
                made.append(reduction(self.book, "gradients cast to reduce", sum(turn), (how.dtypes.reduce, stream)))
            events += [*(line + 1 for line in made), *(-line - 1 for line in reversed(made))]
        return events

    def _copied(self, slot: Slot) -> list[int]:
        """A gradient that this rank owns a piece of: copied into the buffer of such, whole; or kept as it is."""
        if not self.how.contiguous:
            return []
        events: list[int] = []
        if self.own is None:
            events = self._buffer()
        events += self._dropped(slot)
        self.stay.grads[slot] = VIEW
        return events

    def _buffer(self) -> list[int]:
        how, stay = self.how, self.stay
        if how.compact:
            self.own = VIEW
            if stay.kept:
                return []
            parts = [group.part for group in self.groups]
            stay.kept = [self._gradients("fp32 gradients, this rank's part", part, FP32) for part in parts]
            return [line + 1 for line in stay.kept]
        name = "gradients of the parameters of this rank" + (", of this micro-batch" if stay.again else "")
        self.own = self._gradients(name, sum(slot.size for slot in self.mine), self.how.came)
        return [self.own + 1]

    def _offloaded(self, slot: Slot) -> list[int]:
        """The piece's norm in fp64, then its copy in the master weights' dtype, on the way to the host."""
        events: list[int] = []
        size = sum(group.piece(slot, self.how.rank or 0) for group in self.groups if slot in group.owners)
        if size:
            for name, dtype in (("norm of a gradient's piece", FP64), ("piece of a gradient, cast", FP32)):
                line = reduction(self.book, name, size, (dtype, 0))
                events += [line + 1, -line - 1]
        events += self._dropped(slot)
        self.stay.grads.pop(slot, None)
        return events

    # ---- the end of a backward

    def _epilogue(self) -> list[int]:
        """The first micro-batch's gradients of this rank are kept, later ones are added to them; all others go."""
        stay, how = self.stay, self.how
        keeps = not how.offload and not stay.again
        events: list[int] = []
        for slot, line in stay.grads.items():
            if line != VIEW:
                if keeps and not how.contiguous and slot in self.mine:
                    stay.kept.append(line)
                else:
                    events.append(-line - 1)
        if self.own is not None and self.own != VIEW:
            if keeps:
                stay.kept.append(self.own)
            else:
                events.append(-self.own - 1)
        events = [*(-line - 1 for line in stay.buckets), *events]
        stay.grads, stay.buckets, stay.again = {}, [], True
        return events

    # ---- lines

    def _gradients(self, name: str, size: int, dtype: DType) -> int:
        dims = (Axis(Dim.ELEMENTS, size),)
        stream = REDUCTION if self.how.overlap else 0
        return self.book.made(Account.GRADIENTS, name, dims, Made(dtype, DEEPSPEED.source, self.how.ranks, stream))
