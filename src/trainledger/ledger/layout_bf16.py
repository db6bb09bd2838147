"""The layout of DeepSpeed's BF16_Optimizer: bf16 weights whole, fp32 gradients of all of them, the rest in parts.

Source: deepspeed/runtime/bf16_optimizer.py (0.9.5 to 0.19.8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trainledger.base.dims import Axis, Dim
from trainledger.facts.deepspeed import DEEPSPEED, FREED_AT_ONCE, IMMEDIATE, LAZY_STATES
from trainledger.ledger.arrange import Hooks
from trainledger.ledger.blocks import Walked
from trainledger.ledger.book import Book
from trainledger.ledger.layout_deepspeed import Moments
from trainledger.ledger.layout_stage0 import Bare
from trainledger.ledger.updates import Parameter, Runs, births, deaths
from trainledger.ledger.zero import Group, Zero, groups_of
from trainledger.lines.line import Account
from trainledger.lines.moments import OPTIMIZER
from trainledger.lines.stream import Events
from trainledger.model.program import Role, Weight


class Summed(Hooks):
    """bf16 gradients cast and added to the fp32 ones: as each comes, or all after backward; then all reduced, in a copy
    of the reductions' dtype where that is another."""

    def __init__(self, book: Book, how: Zero, groups: Sequence[Group], at_once: bool, last: bool) -> None:
        self.book, self.how, self.groups, self.at_once, self.last = book, how, groups, at_once, last

    def within(self, at: int, walked: Walked) -> Mapping[int, Events]:
        """Each gradient as it comes, where it is added at once."""
        if not self.at_once:
            return {}
        events: dict[int, Events] = {}
        for one in walked.arrived:
            gone = (-one.line - 1,) if FREED_AT_ONCE.holds(self.how.version) else ()
            events[one.at] = (*events.get(one.at, ()), *self._cast(one.weight.elements), *gone)
        return events

    def ended(self) -> Events:
        """The others, and the reduction of all."""
        slots = () if self.at_once else [slot for group in self.groups for slot in group.slots]
        events = [event for slot in slots for event in self._cast(slot.size)]
        if self.last and self.how.dtypes.reduce != self.how.dtypes.accumulate:
            for group in self.groups:
                name, size = "gradients cast to reduce", group.part * self.how.ranks
                dims = (Axis(Dim.ELEMENTS, size),)
                line = self.book.tensor(Account.REDUCTION, name, dims, self.how.dtypes.reduce, DEEPSPEED.source)
                events += [line + 1, -line - 1]
        return tuple(events)

    def _cast(self, size: int) -> tuple[int, int]:
        dims = (Axis(Dim.ELEMENTS, size),)
        dtype = self.how.dtypes.accumulate
        line = self.book.tensor(Account.REDUCTION, "a gradient cast to add", dims, dtype, DEEPSPEED.source)
        return (line + 1, -line - 1)


class Bf16(Bare):
    """BF16_Optimizer."""

    def parameters_of(self) -> tuple[Parameter, ...]:
        """Each group's part of one rank."""
        self.groups = groups_of(self.grouped(), self.how)
        return tuple(
            Parameter(
                Weight("flat", (Axis(Dim.ELEMENTS, group.part),), Role.MATRIX),
                f"this rank's part of group {at + 1}",
                self.how.dtypes.master,
                1,
            )
            for at, group in enumerate(self.groups)
        )

    def build(self) -> Runs:
        """Each group's flat weights in the place of single ones, master weights, gradients of all weights."""
        whole = [(group, self.originals(group.slots)) for group in self.groups]
        runs: Runs = [*births(self.originals(self.frozen())), *(run for _, lines in whole for run in births(lines))]
        runs += self.buffers()
        dtypes, ranks = self.how.dtypes, self.how.ranks
        for at, (group, lines) in enumerate(whole, 1):
            size = group.part * ranks
            flat = self.flat(Account.WEIGHTS, f"flat weights of group {at}", size, dtypes.weights)
            cast, away = self.passing(Account.STEP, "copy of this rank's part", group.part, dtypes.weights)
            master = self.flat(Account.MASTER, f"master weights of group {at}", group.part, dtypes.master, ranks)
            kept = self.flat(Account.GRADIENTS, f"gradients of group {at}", size, dtypes.accumulate)
            runs += [((flat + 1,), 1), *deaths(lines), ((cast, master + 1, away, kept + 1), 1)]
        if not LAZY_STATES.holds(self.how.version):
            runs += self._stepped(True)
        return runs

    @property
    def at_once(self) -> bool:
        """Whether gradients are added as they come (immediate_grad_update)."""
        since, until = IMMEDIATE
        version = self.how.version
        return bool(version) and since.holds(version) and not until.holds(version)

    def hooks(self, number: int, last: bool) -> Hooks:
        """What happens around one micro-batch."""
        return Summed(self.job.book, self.how, self.groups, self.at_once, last)

    def step(self, first: bool) -> Moments:
        """States, the update of each part, and the bf16 gradients go."""
        freed = self.at_once and FREED_AT_ONCE.holds(self.how.version)
        runs = self._stepped(first and LAZY_STATES.holds(self.how.version))
        return [(OPTIMIZER, [*runs, *([] if freed else deaths(self.kept()))])]

    def _stepped(self, creates: bool) -> Runs:
        runs: Runs = []
        for one in self.parameters:
            runs += [*(self.states((one,)) if creates else []), *self.temporaries((one,))]
        return runs
