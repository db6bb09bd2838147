"""Weights that DeepSpeed's ZeRO-3 gathers in 8 bits (`zero_quantized_weights`): codes, scales, and their values.

A gather is of codes, in one tensor, beside the scales of all ranks; what this rank sends is held until it was received.
The first wait makes 16-bit values of all codes; a single weight is these values, several are copied out of them.
Source: deepspeed/runtime/zero/partition_parameters.py (0.10.0 to 0.19.8): _all_gather_coalesced, AllGatherHandle,
AllGatherCoalescedHandle, CUDAQuantizer; csrc/quantization/pt_binding.cpp.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim
from trainledger.facts.deepspeed import QUANTIZER
from trainledger.facts.dtypes import FP16, FP32, INT8, DType
from trainledger.ledger.book import Book
from trainledger.ledger.registered import Slot
from trainledger.ledger.zero3_gathered import Fetching, Gathered
from trainledger.lines.shards import rows_of


@dataclass(frozen=True, slots=True)
class Codes:
    """Where another 16-bit dtype than fp16, in which alone the kernels read and write, is cast: parts before they are
    coded and a single weight after, and copies."""

    parts: bool
    copies: bool


class Coded(Gathered):
    """Parameters gathered as codes."""

    __slots__ = ("_codes", "_sent", "_shared")

    def __init__(self, book: Book, how: Fetching, codes: Codes) -> None:
        super().__init__(book, how)
        self._codes = codes
        self._sent: dict[tuple[Slot, ...], list[int]] = {}  # what this rank sends
        self._shared: dict[tuple[Slot, ...], list[int]] = {}  # codes and scales of all ranks, values of a group

    @property
    def state(self) -> tuple[object, ...]:
        """With the lines of what is under way."""
        lines = (tuple((group, *own) for group, own in held.items()) for held in (self._sent, self._shared))
        return (*super().state, *lines)

    def gather(self, slots: Iterable[Slot], backward: bool = False) -> list[int]:
        """Start one gather of those that are absent."""
        absent, ranks, events = self._started(slots, backward)
        if not absent:
            return []
        part = sum(rows_of(slot.size, ranks) for slot in absent)
        groups = QUANTIZER.groups(part)
        codes = self._size("codes of gathered weights", part * ranks, INT8)
        passing = [self._size("parts to code, joined", part, self._how.dtype)] if absent[1:] else []
        passing += [self._size("parts to code", part, FP16)] if self._codes.parts else []
        own = [self._size("scales of parts", groups, FP32), self._size("codes of parts", part, INT8)]
        scales = self._size("scales of gathered weights", groups * ranks, FP32)
        self._sent[absent], self._shared[absent] = own, [codes, scales]
        events.append(codes + 1)
        events += [line + 1 for line in (*passing, *own)] + [-line - 1 for line in passing]
        return [*events, scales + 1]

    def wait(self, slot: Slot) -> list[int]:
        """A parameter under way is there: the first of a group makes values of all codes, the last lets them go."""
        group = self._group.pop(slot, None)
        if group is None:
            return []
        events = [-line - 1 for line in self._sent.pop(group, ())]
        if not group[1:]:
            return [*events, *self._single(slot)]
        if slot not in self.here:
            events += self._values(group)
        if not any(self._group.get(one) is group for one in group):
            events += [-line - 1 for line in self._shared.pop(group)]
        return events

    def _single(self, slot: Slot) -> list[int]:
        line, made = self._made(slot, self._codes.parts)
        self.here[slot] = line
        return [*made, *(-one - 1 for one in self._shared.pop((slot,)))]

    def _values(self, group: Sequence[Slot]) -> list[int]:
        shared = self._shared[tuple(group)]
        size = self.book.lines[shared[0]].dims[0].size
        shared.append(self._size("values of gathered codes", size, FP16))
        events = [shared[-1] + 1]
        for slot in group:
            self.here[slot], made = self._made(slot, self._codes.copies)
            events += made
        return events

    def _made(self, slot: Slot, cast: bool) -> tuple[int, list[int]]:
        """The line of a weight, and the events that make it: out of the same in fp16 where it is cast."""
        line = self._line(f"{slot.name} (whole)", slot.weight.dims)
        if not cast:
            return line, [line + 1]
        before = self._size(f"{slot.name} (whole), before it is cast", slot.size, FP16)
        return line, [before + 1, line + 1, -before - 1]

    def _size(self, name: str, size: int, dtype: DType) -> int:
        return self._line(name, (Axis(Dim.ELEMENTS, size),), dtype)
