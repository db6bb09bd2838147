"""Inputs of recomputed layers that go to the host during forward and come back one by one in backward.

Sources: torchtune/training/_activation_offloading.py, OffloadActivations (2024-11), which TRL has taken over
(trl/models/activation_offloading.py, 1.16.0): a tensor that was packed is let go
of when so many more have been packed; a checkpoint packs the input of its layer. The head is left out; the last norm
packs enough tensors of its own that no layer's input is left.
"""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.sources import Basis, Source
from trainledger.facts.torchtune import NAME, OFFLOADING, TRL_PLAIN, TRL_REENTRANT, Offloading
from trainledger.ledger.arrange import Hooks
from trainledger.ledger.run import Run
from trainledger.lines.line import Account, Line, Place
from trainledger.lines.stream import Events


class Offloaded(Hooks):
    """What leaves and comes back around `layers` layers, whose inputs are all of one line."""

    def __init__(self, line: int, layers: int, stash: int) -> None:
        self.line, self.layers, self.stash = line, layers, stash

    def ahead(self, at: int) -> Events:
        """As a layer packs its input, an older one goes; before the head all that are left do."""
        last = at == self.layers + 1
        gone = min(self.layers, self.stash) if last else int(self.stash < at <= self.layers)
        return (-self.line - 1,) * gone

    def behind(self, at: int) -> Events:
        """A layer's input comes back."""
        return (self.line + 1,) if 0 < at <= self.layers else ()


def offloading_of(run: Run) -> Offloading:
    """How the run's framework offloads: torchtune's own, or TRL's for Transformers' models."""
    if run.software.framework == NAME:
        return OFFLOADING
    return TRL_REENTRANT if run.recompute == "reentrant" else TRL_PLAIN


def on_host(like: Line, layers: int, source: Source) -> Iterator[tuple[Line, int]]:
    """The same tensors in the host's page-locked memory, which is rounded up to a power of two."""
    unit = 1 << max(like.unit - 1, 0).bit_length()
    why = "page-locked: rounded up to a power of two"
    name = f"{like.name} of layers, offloaded"
    line = Line(Account.ACTIVATIONS, name, like.dims, like.dtype, unit, Basis.COUNTED, source, why, Place.HOST)
    yield line, layers
