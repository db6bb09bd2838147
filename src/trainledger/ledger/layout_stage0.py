"""The layouts of DeepSpeed's wrappers without ZeRO: FP16_UnfusedOptimizer, FP16_Optimizer, and the bare optimizer.

Source: deepspeed/runtime/fp16/unfused_optimizer.py, fused_optimizer.py, runtime/engine.py (0.9.5 to 0.19.8):
buffered_allreduce_fallback.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.code_read import ACCUMULATE
from trainledger.facts.deepspeed import DEEPSPEED
from trainledger.facts.dtypes import FP32, DType
from trainledger.ledger.arrange import Hooks, Micro, arranged
from trainledger.ledger.book import Book
from trainledger.ledger.layout import Copies
from trainledger.ledger.layout_deepspeed import KINDS, DeepSpeed, Moments
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import walk
from trainledger.ledger.registered import Slot
from trainledger.ledger.updates import Parameter, Runs, births, deaths
from trainledger.ledger.zero import fillings
from trainledger.lines.line import Account
from trainledger.lines.moments import CLIP, OPTIMIZER
from trainledger.lines.stream import Events
from trainledger.model.program import Weight


class Fallback(Hooks):
    """Gradients reduced after the last micro-batch: flat copies of so many, one after another."""

    def __init__(self, book: Book, slots: Sequence[Slot], dtype: DType) -> None:
        self.book, self.slots, self.dtype = book, slots, dtype

    def ended(self) -> Events:
        """Every copy, one after another."""
        events: list[int] = []
        for turn in fillings([slot.size for slot in self.slots], DEEPSPEED.fallback):
            if turn[1:]:
                dims = (Axis(Dim.ELEMENTS, sum(turn)),)
                name = "gradients to reduce, joined"
                line = self.book.tensor(Account.REDUCTION, name, dims, self.dtype, DEEPSPEED.source)
                events += [line + 1, -line - 1]
        return tuple(events)


class Bare(DeepSpeed):
    """Full-precision weights: the optimizer updates them itself. What the other wrappers share: gradients stay."""

    def parameters_of(self) -> tuple[Parameter, ...]:
        """Every trained parameter, in the dtype of what is updated."""
        return tuple(Parameter(one.weight, one.name, self.how.dtypes.master, 1) for one in self.trained)

    def build(self) -> Runs:
        """Weights and buffers."""
        return [*births(self.originals(self.slots)), *self.buffers()]

    def micros(self, leaves: Leaves) -> Callable[[bool], tuple[Micro, ...]]:
        """The micro-batches of a step; the first leaves gradients, later ones are added to them."""
        count = min(self.schedule.count, KINDS)
        walked = {fresh: walk(self.job, replace(leaves, fresh=fresh)) for fresh in {True, count == 1}}

        def step(later: bool) -> tuple[Micro, ...]:
            return tuple(
                arranged(*walked[not number], self.hooks(number, number == count - 1)) for number in range(count)
            )

        return step

    def hooks(self, number: int, last: bool) -> Hooks:
        """What happens around one micro-batch."""
        return Fallback(self.job.book, self.trained, self.how.dtypes.weights) if last else Hooks()

    def kept(self) -> Copies:
        """Lines of the gradients that stay until the step."""
        make, dtype = self.job.book.tensor, self.how.dtypes.weights
        return [
            (make(Account.GRADIENTS, one.name, one.weight.dims, dtype, ACCUMULATE), 1) for one in reversed(self.trained)
        ]

    def step(self, first: bool) -> Moments:
        """States, the update, and gradients go."""
        born = self.states(self.parameters) if first else []
        return [(OPTIMIZER, [*born, *self.temporaries(self.parameters), *deaths(self.kept())])]

    def own_lines(self, account: Account, name: str, dtype: DType) -> Copies:
        """A line of every trained parameter's size."""
        make = self.job.book.tensor
        return [
            (make(account, f"{name} of {one.name}", one.weight.dims, dtype, DEEPSPEED.source), 1)
            for one in self.trained
        ]


class Unfused(Bare):
    """FP16_UnfusedOptimizer, which runs any optimizer but DeepSpeed's fused Adam: fp32 copies, one by one; the
    optimizer steps once when it is built."""

    def build(self) -> Runs:
        """Weights, master weights, and a first step on gradients that are zero."""
        masters = self.own_lines(Account.MASTER, "master weight", self.how.dtypes.master)
        zeros = [*self.kept()[::-1], *self.own_lines(Account.STEP, "fp32 gradient", FP32)]
        stepped = [*self.states(self.parameters), *self.temporaries(self.parameters)]
        return [*super().build(), *births(masters), *births(zeros), *stepped, *deaths(zeros)]

    def step(self, first: bool) -> Moments:
        """Norms in fp32, gradients in fp32 beside the others, the update."""
        sizes = [one.size for one in self.trained]
        raised = self.own_lines(Account.STEP, "fp32 gradient", FP32)
        runs = [*births(raised), *self.temporaries(self.parameters), *deaths(raised), *deaths(self.kept())]
        return [(CLIP, [*self.overflow(sizes), *self.norms(sizes, FP32)]), (OPTIMIZER, runs)]


class Fused(Bare):
    """FP16_Optimizer, which runs DeepSpeed's fused Adam: flat weights and master weights; a first step when built."""

    def parameters_of(self) -> tuple[Parameter, ...]:
        """All trained parameters as one."""
        weight = Weight("flat", (Axis(Dim.ELEMENTS, self.total),))
        return (Parameter(weight, "the flat weights", self.how.dtypes.master, 1),) if self.trained else ()

    @property
    def total(self) -> int:
        """Elements of all trained parameters."""
        return sum(one.size for one in self.trained)

    def build(self) -> Runs:
        """The model, a copy of every weight, the flat weights that both give way to, master weights, states."""
        dtypes = self.how.dtypes
        copies = self.own_lines(Account.WEIGHTS, "copy", dtypes.weights)
        flat = self.flat(Account.WEIGHTS, "flat weights", self.total, dtypes.weights) + 1
        master = self.flat(Account.MASTER, "master weights", self.total, dtypes.master) + 1
        zero, gone = self.passing(Account.STEP, "fp32 gradients, flat", self.total, FP32)
        whole = self.originals(self.trained)
        stepped = [*self.states(self.parameters), *self.temporaries(self.parameters)]
        runs = [*births(self.originals(self.frozen())), *births(whole), *self.buffers(), *births(copies)]
        runs += [((flat,), 1), *deaths([*whole, *copies]), ((master,), 1), ((zero,), 1), *stepped]
        return [*runs, ((gone,), 1)]

    def step(self, first: bool) -> Moments:
        """Gradients in fp32 one by one, then flat; the 16-bit ones go before the update."""
        raised = self.own_lines(Account.STEP, "fp32 gradient", FP32)
        born, gone = self.passing(Account.STEP, "fp32 gradients, flat", self.total, FP32)
        runs = [*births(raised), ((born,), 1), *deaths(raised), *deaths(self.kept())]
        sizes = [one.size for one in self.trained]
        return [(CLIP, self.overflow(sizes)), (OPTIMIZER, [*runs, *self.temporaries(self.parameters), ((gone,), 1)])]
