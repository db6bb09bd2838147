"""Megatron-Core's precision-aware optimizer: Transformer Engine's FusedAdam keeps the master weights with its moments.

They appear in the first step, of bf16 weights as the 16 bits that these lack; gradients are read in the buffer's dtype.
Every state in fewer bits has a scale, and is copied to fp32 while its parameter group is updated.
Source: megatron/core/optimizer/{__init__,distrib_optimizer,optimizer_config}.py (0.11 to 0.19);
transformer_engine/pytorch/optimizers/fused_adam.py (2.1 to 2.17).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, DTYPES, FP32, INT16
from trainledger.facts.megatron_buffers import AWARE, AWARE_BY_RECIPE, release_of
from trainledger.facts.optimizer_kinds import Kind
from trainledger.ledger.book import Book, Made
from trainledger.ledger.mega_buffers import DISTRIBUTED
from trainledger.ledger.mega_fp8 import DELAYED, WIDTHS
from trainledger.ledger.mega_routing import installed
from trainledger.ledger.mega_states import Copies, Kept, States, pattern
from trainledger.ledger.step import Updates
from trainledger.ledger.updates import Parameter, Runs, births, deaths
from trainledger.lines.line import Account
from trainledger.lines.param_ranges import shard
from trainledger.lines.param_states import Stepped, raised
from trainledger.plan.schema import Plan

OPTION, REMAINDERS = "use_precision_aware_optimizer", "store_param_remainders"
ADAMS = ("adam", "adamw")


def stepped_of(plan: Plan, updates: Updates) -> Stepped | None:
    """How the plan's precision-aware optimizer keeps its states; None where it is another, or Megatron-Core keeps the
    master weights beside it after all."""
    options, precision, states = plan.parallel.options, plan.precision, dict(updates.how.dtypes)
    moments = tuple(states.get(kind, FP32) for kind in (Kind.FIRST, Kind.SECOND))
    master = DTYPES[precision.master] if precision.master else FP32
    asked = options.get(OPTION, any(dtype != FP32 for dtype in (*moments, master)))
    known = plan.parallel.strategy == DISTRIBUTED and updates.row.name in ADAMS
    if not asked or not known or plan.offload.optimizer is not None or precision.master is None:
        return None
    low = precision.fp8.recipe if precision.fp8 else None
    found = Stepped(
        moments, master, True, bool(options.get(REMAINDERS, True)),
        (low or DELAYED) if precision.compute in WIDTHS else "",
        release_of(plan.stack.versions), installed(plan),
    )  # fmt: skip
    return found if found.keeps_master else None


class Aware(States):
    """States of which FusedAdam keeps the master weights, too."""

    def __init__(self, book: Book, kept: Kept, updates: Updates, stepped: Stepped) -> None:
        super().__init__(book, replace(kept, master=None), updates)
        self.stepped = stepped

    def parameters(self) -> tuple[Parameter, ...]:
        """What the optimizer updates, whose states are in fp32 unless the plan says otherwise."""
        return tuple(replace(one, dtype=FP32) for one in super().parameters())

    def step(self, first: bool) -> Runs:
        """One step; at the first the master weights appear, and the scales."""
        made = self._raised()
        return [*(births(self._kept()) if first else []), *births(made), *super().step(first), *deaths(made)]

    def _kept(self) -> Copies:
        counts: Counter[int] = Counter()
        scales = sum(dtype != FP32 for dtype in (*self.stepped.moments, self.stepped.master))
        for name, size, split in self._pieces():
            dtype, more = (INT16, " (the bits that they lack)") if split else (self.stepped.master, "")
            dims, made = (Axis(Dim.ELEMENTS, size),), Made(dtype, AWARE.source)
            counts[self.book.made(Account.MASTER, f"master weights of {name}{more}", dims, made)] += 1
            if scales:
                line = self.book.made(Account.OPTIMIZER, "scale of a state", (), Made(FP32, AWARE.source))
                counts[line] += scales
        return list(counts.items())

    def _pieces(self) -> Iterator[tuple[str, int, bool]]:
        """Name and elements of every piece that the rank updates, and whether its master is split."""
        for buffer in self.buffers:
            for piece in shard(buffer, self.place % buffer.ranks):
                one = piece.parameter
                yield pattern(one.name), piece.world.size, self.stepped.splits and one.dtype == BF16

    def _raised(self) -> Copies:
        """Copies in fp32 of the states of the largest group: of dense parameters, or of experts."""
        groups: dict[bool, int] = {}
        for buffer in self.buffers:
            sizes = [piece.world.size for piece in shard(buffer, self.place % buffer.ranks)]
            groups[buffer.expert] = groups.get(buffer.expert, 0) + raised(sizes, self.stepped)
        most = max(groups.values(), default=0)
        if not most:
            return []
        dims = (Axis(Dim.ELEMENTS, most // FP32.bytes_of(1)),)
        made = Made(FP32, AWARE_BY_RECIPE.source)
        return [(self.book.made(Account.STEP, "fp32 copies of a group's states", dims, made), 1)]
