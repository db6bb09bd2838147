"""Does it fit? An interval against the bytes of a device, with reasons."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from trainledger.base.places import Place
from trainledger.base.units import format_size

Outcome = Literal["fits", "tight", "does-not-fit"]


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A place that holds tensors and was compared with nothing, and why."""

    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer for one budget. `margin` = usable - expected, in bytes; both are None without a device. `need`: the
    band that was compared (low, expected, high), bytes. `unjudged`: places that it does not speak of."""

    outcome: Outcome | None
    margin: int | None
    reasons: tuple[str, ...]
    need: tuple[int, int, int] | None = field(default=None, compare=False)
    unjudged: tuple[Unjudged, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; bytes."""
        return {
            "outcome": self.outcome,
            "margin": self.margin,
            "reasons": list(self.reasons),
            "unjudged": [{"place": one.place, "reason": one.reason} for one in self.unjudged],
        }


def judge(usable: int | None, low: int, expected: int, high: int) -> Verdict:
    """Compare a band of bytes (low <= expected <= high) with the usable bytes.

    `fits`: the high end is at most `usable`; `does-not-fit`: the low end is above it; `tight`: between. A margin below
    zero with `tight` means that it is more likely not to fit. Raises ValueError for a band out of order or a negative
    number of bytes.
    """
    if not 0 <= low <= expected <= high:
        raise ValueError(f"{low}, {expected}, {high}: a band is 0 <= low <= expected <= high")
    if usable is None:
        reason = "no device given: nothing to compare with"
        return Verdict(None, None, (reason,), unjudged=(Unjudged(Place.DEVICE, reason),))
    if usable < 0:
        raise ValueError(f"{usable}: usable bytes are not negative")
    room = f"{format_size(usable)} usable"
    margin, need = usable - expected, (low, expected, high)
    if high <= usable:
        reason = f"the high end, {format_size(high)}, is within the {room}"
        return Verdict("fits", margin, (reason, _balance(margin)), need)
    if low > usable:
        reason = f"even the low end, {format_size(low)}, is above the {room}"
        return Verdict("does-not-fit", margin, (reason, _balance(margin)), need)
    reason = f"between {format_size(low)} and {format_size(high)}, and the {room} lie between"
    return Verdict("tight", margin, (reason, _balance(margin)), need)


def worst(found: Sequence[Verdict]) -> Verdict:
    """The verdict of several groups of devices: that of the one that is worst off."""
    order = (None, *get_args(Outcome))
    return max(found, key=lambda one: (order.index(one.outcome), -(one.margin or 0)))


def _balance(margin: int) -> str:
    """What is left over, or missing, at the expected value."""
    if margin >= 0:
        return f"{format_size(margin)} left at the expected value"
    return f"{format_size(-margin)} short at the expected value"
