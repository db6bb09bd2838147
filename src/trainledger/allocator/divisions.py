"""roundup_power2_divisions: one number, or a list by size, as the environment spells them."""

from __future__ import annotations

from trainledger.facts.allocator_settings import INTERVALS


def read_divisions(parts: list[str]) -> tuple[int, ...]:
    """Divisions per power of two, `INTERVALS.count` of them, from `4` or `[256:1,512:2,>:4]` in its parts.

    The first size of a list also holds for every smaller one; a size that is not named keeps no divisions; `>` holds
    from the size after the one named before it. Raises ValueError that says what is allowed.
    """
    if parts[0] != "[":
        if len(parts) != 1:
            raise ValueError
        return (_power(parts[0], zero=False),) * INTERVALS.count
    divisions = [0] * INTERVALS.count
    last, first = 0, True
    for size, count in _entries(parts[1:-1]):
        if size == ">":
            divisions[last + 1 :] = [count] * (INTERVALS.count - last - 1)
            continue
        last = min(_power(size, zero=False).bit_length() - 1, INTERVALS.count - 1)
        if first:
            divisions[:last] = [count] * last
            first = False
        divisions[last] = count
    return tuple(divisions) if any(divisions) else ()


def _entries(parts: list[str]) -> list[tuple[str, int]]:
    """Sizes (MiB, or `>`) with their divisions; a comma after the last is allowed."""
    entries = []
    rest = [*parts, ","] if parts and parts[-1] != "," else parts
    while rest:
        if len(rest) < 4 or rest[1] != ":":
            raise ValueError
        size, _, count, comma, *rest = rest
        if comma != ",":
            raise ValueError
        entries.append((size, _power(count, zero=True)))
    return entries


def _power(text: str, *, zero: bool) -> int:
    """A power of 2 (or 0, where that is allowed)."""
    number = int(text) if text.isdigit() else -1
    if number < 0 or number & (number - 1) or (number == 0 and not zero):
        raise ValueError
    return number
