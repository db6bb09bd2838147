"""The answer of `layout` as text: the flat buffers, then every parameter with its ranges."""

from __future__ import annotations

from trainledger.answer.places import Container, Entry, Layout
from trainledger.lines.param_ranges import Range
from trainledger.show.table import Section

BUFFERS = ("buffer", "elements", "unpadded", "buckets", "ranks", "rank", "shard", "weights B", "gradients B")
RANGED = ("world", "local", "param")
PARAMETERS = ("parameter", "elements", "dtype", "buffer", "bucket", *RANGED)
NONE = "-"


RANGES = "Ranges are of elements, [start, end): in the buffer (world), in this rank's shard (local), in the parameter."


def sections(found: Layout) -> tuple[Section, ...]:
    """A title, the buffers numbered from 1, the parameters in their order. Columns that say nothing are left out."""
    numbers = {one.name: str(number) for number, one in enumerate(found.containers, 1)}
    buffers = tuple((numbers[one.name], *_buffer(one)) for one in found.containers)
    rows = tuple(_parameter(one, numbers.get(one.container, NONE)) for one in found.entries)
    return (
        Section(f"rank {found.rank:,} of {found.world:,}: {found.strategy}", (RANGES, *found.notes)),
        _table(("#", *BUFFERS), buffers, ("#", BUFFERS[0]), ()),
        _table(PARAMETERS, rows, PARAMETERS[:1], RANGED),
    )


def _table(
    header: tuple[str, ...], rows: tuple[tuple[str, ...], ...], left: tuple[str, ...], always: tuple[str, ...]
) -> Section:
    kept = [at for at, name in enumerate(header) if name in (*left, *always) or any(row[at] != NONE for row in rows)]
    shown = tuple(tuple(row[at] for at in kept) for row in rows)
    names = tuple(header[at] for at in kept)
    return Section("", (), names, shown, tuple(at for at, name in enumerate(names) if name not in left))


def _buffer(one: Container) -> tuple[str, ...]:
    sizes = (one.elements, one.unpadded, len(one.buckets) or None, one.ranks, one.rank, one.owned)
    return (one.name, *(_number(size) for size in (*sizes, one.weight_bytes, one.gradient_bytes)))


def _parameter(one: Entry, number: str) -> tuple[str, ...]:
    held = one.held
    ranges = (held.world, held.local, held.within) if held else (None, None, None)
    return (one.name, f"{one.elements:,}", one.dtype, number, _number(one.bucket), *map(_range, ranges))


def _number(value: int | None) -> str:
    return NONE if value is None else f"{value:,}"


def _range(value: Range | None) -> str:
    return NONE if value is None else f"[{value.start:,}, {value.end:,})"
