"""Which weight updates a number format loses, and the warnings that follow."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from math import frexp, isfinite, ldexp

from trainledger.facts.dtypes import FP32, DType
from trainledger.facts.recipes import MIXED_PAPER


@dataclass(frozen=True, slots=True)
class Update:
    """One update of one weight: whether it is lost, the spacing of numbers above the weight, and half of that.

    `stored` is what the format holds after the update, rounded to nearest, ties to even.
    """

    lost: bool
    spacing: float
    half: float
    stored: float


@dataclass(frozen=True, slots=True)
class PrecisionWarning:
    """A reason to doubt a choice of dtypes: `smallest` is the least relative update that surely survives."""

    reason: str
    smallest: float
    source: str


def lost_update(dtype: DType, weight: float, update: float) -> Update:
    """Does `weight + update`, stored in `dtype`, differ from the stored weight?

    Rounds to nearest, ties to even, within the format's normal range (over- and underflow are not modelled). A weight
    of zero has no spacing there: 0, and nothing is lost. Raises ValueError for a format without mantissa bits, or a
    weight or update that is not finite. Source: IEEE 754-2019, section 4.3.1.
    """
    if dtype.mantissa < 1:
        raise ValueError(f"{dtype.name} has no mantissa bits: it stores no weight that an optimizer could add to")
    if not (isfinite(weight) and isfinite(update)):
        raise ValueError("a weight and its update must be finite numbers")
    before = _stored(dtype, Fraction(weight))
    after = _stored(dtype, before + Fraction(update))
    spacing = float(_spacing(dtype, before))
    return Update(update != 0 and after == before, spacing, ldexp(spacing, -1), float(after))


def warnings(weights: DType, master: DType | None) -> tuple[PrecisionWarning, ...]:
    """What to say about weights of one dtype that an optimizer updates with or without a master copy.

    Empty where the optimizer updates fp32 or wider. Source: Mixed Precision Training, section 3.1.
    """
    updated = weights if master is None else master
    if updated.mantissa >= FP32.mantissa:
        return ()
    half = ldexp(1.0, -updated.mantissa - 1)
    whose = "without master weights" if master is None else f"with master weights in {master.name}"
    reason = (
        f"{weights.name} weights {whose} lose small updates: with {updated.mantissa} mantissa bits, whatever is below "
        f"half a unit in the last place (between {ldexp(half, -1):.1e} and {half:.1e} of the weight) rounds away; "
        f"fp32 master weights or stochastic rounding keep it"
    )
    return (PrecisionWarning(reason, half, str(MIXED_PAPER)),)


def _spacing(dtype: DType, value: Fraction) -> Fraction:
    """The distance from `value` to the next number away from zero (0 for zero)."""
    if value == 0:
        return Fraction(0)
    _, exponent = frexp(float(value))  # value = m * 2^exponent with m in [1/2, 1)
    return Fraction(ldexp(1.0, exponent - 1 - dtype.mantissa))


def _stored(dtype: DType, value: Fraction) -> Fraction:
    spacing = _spacing(dtype, value)
    return value if spacing == 0 else round(value / spacing) * spacing
