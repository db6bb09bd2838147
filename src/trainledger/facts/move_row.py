"""What a row of advice says: keys of the plan that it sets, when it can be taken, and its price."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum

from trainledger.base.sources import Source


class Price(StrEnum):
    """What a change costs, in the words that a reader is told. The order is that of what is tried first."""

    FREE = "no more time"
    LAUNCHES = "more and smaller kernels, so a lower use of the device"
    SMALLER = "products of a quarter of the size, so a clearly lower use of the device"
    TRAFFIC = "more traffic between ranks"
    LOADING = "batches are made ready later, so the device may wait for them"
    WAITING = "training stands still while a checkpoint is written"
    RECOMPUTE = "part of the forward runs twice"
    HOST = "traffic over the host's link, and a slower update"
    NVME = "traffic between each node and its drives, and a much slower update"
    RESUMING = "less to go back to after a fault"
    NUMERICS = "other rounding: compare the loss of a short run"
    CONVERGENCE = "another optimizer or another thing trained: tune its settings anew"
    DATA = "the data is cut: what lies beyond is not learned from"
    DEVICES = "more devices"


LEVELS: tuple[Price, ...] = tuple(Price)  # cheaper first


class Out(Enum):
    """A key is taken out, so that its default counts."""

    OUT = "left out"


OUT = Out.OUT


class Own(Enum):
    """A key keeps the plan's value where another one's default would take its place."""

    OWN = "as it is"


OWN = Own.OWN


@dataclass(frozen=True, slots=True)
class Times:
    """The plan's own value times `up` over `down`; whole, or the change cannot be made."""

    up: int = 1
    down: int = 1


@dataclass(frozen=True, slots=True)
class Last:
    """The names of the last layers of the plan's model: `up` of every `down`, one at least."""

    up: int
    down: int


@dataclass(frozen=True, slots=True)
class Plus:
    """The plan's own list with one more."""

    item: str


@dataclass(frozen=True, slots=True)
class AtLeast:
    """A condition: the plan's value is a number of at least this, and at most that where one is given; `or_none`: or
    none is given."""

    least: int
    most: int | None = None
    or_none: bool = False


@dataclass(frozen=True, slots=True)
class Set:
    """A condition: the key has a value other than null (`given`), or none."""

    given: bool = True


When = tuple[str, tuple[object, ...] | AtLeast | Set]


@dataclass(frozen=True, slots=True)
class Move:
    """One change. `group`: of one group a plan takes one; `needs`: what has to be there for it, in words; `numerics`:
    what of the run's numbers changes, in words (empty: nothing)."""

    name: str
    group: str
    sets: tuple[tuple[str, object], ...]
    price: Price
    source: Source
    when: tuple[When, ...] = ()
    needs: str = ""
    numerics: str = ""
