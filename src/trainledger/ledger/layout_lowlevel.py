"""The layout of ColossalAI's LowLevelZeroPlugin: weights whole, of each a part in fp32 that this rank updates.

Source: the row in facts/colossal.py: _create_master_param_current_rank, step, TensorBucket.all_gather.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from trainledger.base.dims import Axis, Dim
from trainledger.facts.code_read import MODELS
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.dtypes import FP64, DType
from trainledger.facts.optimizer_bytes import StateOptions, state_bytes
from trainledger.facts.optimizer_kinds import Kind
from trainledger.ledger.arrange import Micro, arranged
from trainledger.ledger.book import Made
from trainledger.ledger.host import Lines, host_line
from trainledger.ledger.layout import Copies, Layout, Schedule, Stored, buffers_of
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.lowlevel import Kept, LowLevel, LowLevelHooks
from trainledger.ledger.micro import walk
from trainledger.ledger.opening import Job
from trainledger.ledger.registered import Slot, slots_of
from trainledger.ledger.updates import Parameter, Runs, births, state_lines
from trainledger.lines.line import Account
from trainledger.lines.moments import CLIP, OPTIMIZER
from trainledger.model.program import Weight

if TYPE_CHECKING:
    from trainledger.ledger.step import Updates

Moments = list[tuple[str, Runs]]


class LowLevelZero(Layout):
    """Stages 1 and 2."""

    def __init__(self, job: Job, how: LowLevel, updates: Updates) -> None:
        self.how, self.updates, self.kept = how, updates, Kept()
        self.slots = slots_of(job.model)
        self.trained = tuple(slot for slot in self.slots if job.trained(slot.weight))
        super().__init__(job, Schedule(job.run.accumulation, False, False), Stored(how.weights, how.weights))

    @property
    def own(self) -> LowLevelZero:
        """It builds its states and steps by itself."""
        return self

    @property
    def shards(self) -> int:
        """Over how many ranks master weights and states are spread."""
        return self.how.ranks

    def parameters_of(self) -> tuple[Parameter, ...]:
        """None beside those of its own step."""
        return ()

    def gradients(self) -> Copies:
        """None: they go with the step."""
        return []

    def build(self) -> Runs:
        """The model on the device, then of each trained parameter in turn the part in fp32."""
        make, how = self.job.book.tensor, self.how
        whole = [(make(Account.WEIGHTS, one.name, one.weight.dims, how.weights, MODELS), 1) for one in self.slots]
        events: list[int] = []
        for slot in self.trained:
            padded = how.part(slot) * how.ranks
            pad = self._line(Account.GATHERED, "weight, padded", padded, how.weights) if padded > slot.size else 0
            master = self._master(slot)
            events += [*([pad] if pad else []), master, *([-pad] if pad else []), *([-master] if how.offload else [])]
        return [*births(whole), *births(buffers_of(self.job)), (tuple(events), 1)]

    def _master(self, slot: Slot) -> int:
        account = Account.GATHERED if self.how.offload else Account.MASTER
        name = f"master weights of {slot.name}" + (", on their way to the host" if self.how.offload else "")
        return self._line(account, name, self.how.part(slot), self.how.master)

    def host(self) -> Lines:
        """An offloaded optimizer's master weights, gradients and states."""
        if not self.how.offload:
            return ()
        found = []
        for slot in self.trained:
            size, master = self.how.part(slot), self.how.master
            found += [host_line(Account.MASTER, f"master weights of {slot.name}", size, master)]
            if slot in self.kept.slots:
                found += [host_line(Account.GRADIENTS, f"gradient of {slot.name}", size, master)]
                for state in state_bytes(self.updates.row, (size,), master, self._options(slot.weight)):
                    if state.kind is not Kind.STEP:
                        name = f"{state.kind.value} {state.part.value} of {slot.name}"
                        found.append(host_line(Account.OPTIMIZER, name, state.elements, state.dtype))
        return tuple((replace(line, source=LOW_LEVEL.source), 1) for line in found)

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step, by whether it is later than the first."""
        walked = walk(self.job, leaves)

        def step(later: bool) -> tuple[Micro, ...]:
            self.kept = Kept()
            count = min(self.schedule.count, len(("first", "later")))
            return tuple(
                arranged(*walked, LowLevelHooks(self.job.book, self.how, self.trained, self.kept)) for _ in range(count)
            )

        return step

    # ---- one step of the optimizer

    def step(self, first: bool) -> Moments:
        """Gradients in fp32, all of them; a norm of each in fp64; states, update; weights gathered again."""
        stepped = [slot for slot in self.trained if slot in self.kept.slots]
        grads = [self._line(Account.GRADIENTS, f"fp32 gradient of {one.name}", self.how.part(one), self.how.master)
                 for one in stepped]  # fmt: skip
        clip: list[int] = []
        for line in grads:
            clip += [line, -line] if self.how.offload else [line]
        for slot in stepped:
            double = self._line(Account.CLIP, "gradient in fp64 for its norm", self.how.part(slot), FP64)
            clip += [double, -double]
        gone = [] if self.how.offload else [-line for line in grads]
        last = gone[-1:]  # the one of the last parameter is named until the step returns
        freed = [*last, *(-line - 1 for line in self.kept.lines)]
        runs = [(tuple(gone[: -len(last) or None]), 1), (tuple(self._gathered(stepped)), 1), (tuple(freed), 1)]
        return [(CLIP, [(tuple(clip), 1)]), (OPTIMIZER, [*(self._states(stepped) if first else ()), *runs])]

    def _states(self, stepped: Sequence[Slot]) -> Runs:
        if self.how.offload:
            return []
        parts = [
            Parameter(replace(one.weight, dims=(Axis(Dim.ELEMENTS, self.how.part(one)),)), one.name, self.how.master, 1)
            for one in stepped
        ]
        return births(state_lines(self.job.book, self.updates.row, parts, self._options))

    def _options(self, weight: Weight) -> StateOptions:
        """HybridAdam keeps fp32 states beside master weights of any plan's implementation."""
        return replace(self.updates.options(weight), implementation="apex-fused")

    def _gathered(self, stepped: Sequence[Slot]) -> list[int]:
        """Every part cast to the weights' dtype; large ones gathered by themselves, others by the bucket."""
        events, bucket = list[int](), list[int]()
        filled, named, buffer = 0, 0, 0
        for slot in stepped:
            part, old = self.how.part(slot), named
            named = self._line(Account.GATHERED, f"updated weights of {slot.name}", part, self.how.weights)
            if self.how.offload:
                wide = self._line(
                    Account.GATHERED, f"master weights of {slot.name}, from the host", part, self.how.master
                )
                events += [wide, named, -wide]
            else:
                events.append(named)
            events += [-old] if old and old not in bucket else []
            if part > self.how.bucket:
                whole = self._line(Account.GATHERED, "weights to gather", part * self.how.ranks, self.how.weights)
                into = self._line(
                    Account.GATHERED, f"gathered weights of {slot.name}", part * self.how.ranks, self.how.weights
                )
                events += [whole, into, -whole, *([-buffer] if buffer else [])]
                buffer = into
                continue
            if filled + part > self.how.bucket:
                events += self._bucket(bucket, filled)
                bucket, filled = [], 0
            bucket.append(named)
            filled += part
        events += self._bucket(bucket, filled)
        left = [one for one in (named, buffer) if one and one not in bucket]
        return [*events, *(-one for one in left)]

    def _bucket(self, bucket: Sequence[int], filled: int) -> list[int]:
        """The bucket flat, and a buffer of each rank's."""
        if not bucket:
            return []
        flat = [self._line(Account.GATHERED, "bucket of weights, flat", filled, self.how.weights)] if bucket[1:] else []
        name = "bucket of weights of one rank"
        made = [*flat, *[self._line(Account.GATHERED, name, filled, self.how.weights)] * self.how.ranks]
        return [*made, *(-one for one in (*made, *bucket))]

    def _line(self, account: Account, name: str, size: int, dtype: DType) -> int:
        """The birth of one flat tensor (elements)."""
        dims = (Axis(Dim.ELEMENTS, size),)
        shards = self.how.ranks if account in (Account.MASTER, Account.GRADIENTS) else 1
        return self.job.book.made(account, name, dims, Made(dtype, LOW_LEVEL.source, shards)) + 1
