"""What the layouts of DeepSpeed's wrappers share.

Source: deepspeed/runtime/engine.py, zero/stage_1_and_2.py, zero/stage3.py (0.9.5 to 0.19.8).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trainledger.base.dims import Axis, Dim
from trainledger.facts.code_read import MODELS
from trainledger.facts.deepspeed import DEEPSPEED, DEVICE_OVERFLOW, SCALAR_OVERFLOW
from trainledger.facts.dtypes import FP64, UINT8, DType
from trainledger.ledger.book import Made
from trainledger.ledger.layout import Copies, Layout, Schedule, Stored, buffers_of
from trainledger.ledger.opening import Job
from trainledger.ledger.registered import Slot, slots_of
from trainledger.ledger.updates import Parameter, Runs, births, deaths, one_by_one, state_lines, whole_step
from trainledger.ledger.zero import Zero
from trainledger.lines.line import Account
from trainledger.model.program import Weight
from trainledger.model.quantised import Stored as Tensor

if TYPE_CHECKING:
    from trainledger.ledger.step import Updates

Moments = list[tuple[str, Runs]]
KINDS = len(("first", "between", "last"))  # micro-batches that differ


class DeepSpeed(Layout):
    """What DeepSpeed's wrappers share: parameters one by one, flat lines, the optimizer's temporaries."""

    def __init__(self, job: Job, how: Zero, updates: Updates) -> None:
        self.updates = updates
        self.slots = slots_of(job.model)
        self.how = how
        self.trained = tuple(slot for slot in self.slots if job.trained(slot.weight))
        super().__init__(
            job, Schedule(job.run.accumulation, True, False), Stored(how.dtypes.weights, how.dtypes.weights)
        )

    @property
    def own(self) -> DeepSpeed:
        """It builds its states and steps by itself."""
        return self

    def parameters_of(self) -> tuple[Parameter, ...]:
        """What the optimizer updates; each wrapper has its own."""
        return ()

    def build(self) -> Runs:
        """Events of building the model's states."""
        raise NotImplementedError

    def step(self, first: bool) -> Moments:
        """Events of one step of the optimizer, by moment; `first`: its states appear."""
        raise NotImplementedError

    def gradients(self) -> Copies:
        """None that the step has to set to none: DeepSpeed does so itself."""
        return []

    def grouped(self) -> tuple[tuple[Slot, ...], ...]:
        """Trained parameters by the optimizer's groups: one, as where the configuration names the optimizer."""
        return (self.trained,) if self.trained else ()

    def originals(self, slots: Sequence[Slot]) -> Copies:
        """Lines of whole weights, one by one; of a quantised one all its tensors."""
        return [copies for slot in slots for copies in self.tensors_at(slot, self.tensors(slot.weight))]

    def tensors_at(self, slot: Slot, tensors: Sequence[tuple[Tensor, int]]) -> Copies:
        """Lines of these tensors of a weight."""
        make = self.job.book.tensor
        return [
            (make(Account.WEIGHTS, slot.prefix + one.name, one.dims, one.dtype, one.source or MODELS), one.copies)
            for one, _ in tensors
        ]

    def stored(self, weight: Weight) -> DType:
        """The engine casts all parameters that are floating-point numbers, adapters and norms too."""
        return self.how.dtypes.weights

    def buffers(self) -> Runs:
        """Births of device tensors that are no parameters."""
        return births(buffers_of(self.job))

    def frozen(self) -> tuple[Slot, ...]:
        """Parameters that are not trained."""
        trained = set(self.trained)
        return tuple(one for one in self.slots if one not in trained)

    def flat(self, account: Account, name: str, size: int, dtype: DType, shards: int = 1) -> int:
        """The line of one flat tensor (elements)."""
        dims = (Axis(Dim.ELEMENTS, size),)
        return self.job.book.made(account, name, dims, Made(dtype, DEEPSPEED.source, shards))

    def passing(self, account: Account, name: str, size: int, dtype: DType) -> tuple[int, int]:
        """Birth and death of a flat tensor."""
        line = self.flat(account, name, size, dtype)
        return (line + 1, -line - 1)

    def states(self, parameters: Sequence[Parameter]) -> Runs:
        """Births of the optimizer's states of these parameters."""
        updates = self.updates
        return births(state_lines(self.job.book, updates.row, parameters, updates.options))

    def temporaries(self, parameters: Sequence[Parameter]) -> Runs:
        """What the optimizer's step on these parameters makes and lets go of."""
        book, row = self.job.book, self.updates.row
        how = row.implementation(self.updates.implementation)
        made = whole_step(book, row, how, parameters)
        return [*births(made), *deaths(made), *one_by_one(book, row, how, parameters)]

    def overflow(self, sizes: Sequence[int]) -> Runs:
        """The look for infinities among gradients of these elements, where there is one."""
        version = self.how.version
        if not self.how.checked or SCALAR_OVERFLOW.holds(version):
            return []
        width = DEEPSPEED.device_overflow if DEVICE_OVERFLOW.holds(version) else DEEPSPEED.early_overflow
        name = "look for overflow in a gradient"
        return [(self.passing(Account.CLIP, name, size * width, UINT8), 1) for size in sizes]

    def norms(self, sizes: Sequence[int], dtype: DType = FP64) -> Runs:
        """Norms of gradients of these elements, one after another, each in a copy of this dtype."""
        return [(self.passing(Account.CLIP, "norm of a gradient", size, dtype), 1) for size in sizes]
