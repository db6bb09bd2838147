"""PyTorch's functional collectives: from which release on the parts of one sequence are seen in place, and between
which compiled code keeps sums that its policy names and backward does not read."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Views:
    """From this release on a gather along the second dim is a view where the first has one entry."""

    since: str
    source: Source


VIEWS = Views("2.11", Source("PyTorch", "torch/_utils.py, _maybe_view_chunk_cat (#169404)", "2.11"))


@dataclass(frozen=True, slots=True)
class Waited:
    """Between these releases (`until` not among them) what waits for a collective is never dropped from a graph, so
    that a kept sum counts as read in backward although only the wait reads it."""

    since: str
    until: str
    source: Source


WAITED = Waited(
    "2.5", "2.8",
    Source(
        "PyTorch torch/distributed/_functional_collectives.py, has_side_effect(wait_tensor)",
        "torch/_functorch/partitioners.py, _extract_fwd_bwd_modules (#149652)",
        "v2.5 to v2.8",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Planned:
    """Before this release Inductor holds a buffer up to the next one of its size and dtype, whatever that adds to the
    peak, and what a collective returned up to the next collective."""

    until: str
    source: Source


PLANNED = Planned(
    "2.9", Source("PyTorch torch/_inductor", "codegen/wrapper.py, AllocateLine; comms.py, WeakDep", "v2.5 to v2.9")
)
