"""What runs beside the trained model's own passes, as the steps of a run ask for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from trainledger.ledger.arrange import Micro
from trainledger.ledger.updates import Runs
from trainledger.lines.stream import Events, Segment

Micros = Callable[[bool], tuple[Micro, ...]]


class Beside(Protocol):
    """A reference model's weights and forwards."""

    @property
    def weights(self) -> Runs:
        """Events of building it."""

    @property
    def first(self) -> Sequence[Segment]:
        """Passes before training."""

    @property
    def products(self) -> Mapping[Events, int]:
        """After how many events of a pass its first matrix product has returned."""

    def around(self, micro: Micro) -> Micro:
        """A micro-batch with the passes in it."""


def joined(micros: Micros, beside: Beside | None) -> Micros:
    """The micro-batches of a step, by whether it is later than the first, with what runs beside them."""
    if beside is None:
        return micros
    return lambda later: tuple(beside.around(one) for one in micros(later))
