"""Sizes and counts: binary and decimal units, always the right letter. Shown in GiB, parsed in both."""

from __future__ import annotations

import re
from math import isfinite

KIB = 2**10
MIB = 2**20
GIB = 2**30
TIB = 2**40
KB = 10**3
MB = 10**6
GB = 10**9
TB = 10**12
BITS_PER_BYTE = 8

SIZE_UNITS: dict[str, int] = {
    "b": 1, "kib": KIB, "mib": MIB, "gib": GIB, "tib": TIB, "pib": 2**50,
    "kb": KB, "mb": MB, "gb": GB, "tb": TB, "pb": 10**15,
}  # fmt: skip
COUNT_UNITS: dict[str, int] = {"": 1, "k": KB, "m": MB, "b": GB, "t": TB}
SHOWN_UNITS: dict[str, int] = {
    "B": 1, "KiB": KIB, "MiB": MIB, "GiB": GIB, "TiB": TIB, "kB": KB, "MB": MB, "GB": GB, "TB": TB,
}  # fmt: skip

_NUMBER = re.compile(r"([+-]?(?:\d[\d_,]*)(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)")
LARGEST = 2**63


def _split(value: int | float | str, units: dict[str, int], kind: str) -> int:
    if isinstance(value, bool):
        raise ValueError(f"{value!r} is not a {kind}")
    if isinstance(value, int | float):
        number, factor = float(value), 1
        exact = value if isinstance(value, int) else None
    else:
        match = _NUMBER.fullmatch(value.strip())
        if match is None or match[2].lower() not in units:
            known = ", ".join(unit for unit in units if unit)
            raise ValueError(f"{value!r} is not a {kind}; write a number with one of {known}")
        digits = match[1].replace("_", "").replace(",", "")
        number, factor = float(digits), units[match[2].lower()]
        exact = int(digits) if digits.lstrip("+-").isdigit() else None
    if factor == 1 and not number.is_integer() and isfinite(number):
        raise ValueError(f"{value!r} is no whole number; a {kind} without a unit is one")
    result = exact * factor if exact is not None else round(number * factor) if abs(number) < LARGEST else LARGEST
    if not 0 <= result < LARGEST:
        raise ValueError(f"{value!r} is out of range; a {kind} is between 0 and 2^63")
    return int(result)


def parse_size(value: int | float | str) -> int:
    """Bytes from `80GB` (decimal), `80 GiB` (binary), `8e9` or a plain number.

    Raises ValueError for anything else, a negative size, or 2^63 bytes and more.
    """
    return _split(value, {"": 1, **SIZE_UNITS}, "size")


def parse_count(value: int | float | str) -> int:
    """A count from `7B`, `1.5b`, `5e12`, `128k` or a plain number (decimal letters).

    Raises ValueError for anything else, a negative count, or 2^63 and more.
    """
    return _split(value, COUNT_UNITS, "count")


def format_size(size: int | float, unit: str = "GiB", digits: int = 2) -> str:
    """`14.96 GiB`: bytes shown in one unit, with its letter. `unit="auto"` takes the largest binary unit below."""
    if unit == "auto":
        unit = next((name for name in ("TiB", "GiB", "MiB", "KiB") if abs(size) >= SHOWN_UNITS[name]), "B")
    if unit == "B":
        return f"{round(size):,} B"
    return f"{size / SHOWN_UNITS[unit]:,.{digits}f} {unit}"


def format_count(count: int | float) -> str:
    """`8.03 B` for 8,030,261,248: a count with a decimal letter."""
    for letter, factor in (("T", TB), ("B", GB), ("M", MB), ("k", KB)):
        if abs(count) >= factor:
            return f"{count / factor:,.2f} {letter}"
    return f"{count:,.0f}"
