"""What is said of where parameters lie on one rank: containers, places in them, and the elements that the rank has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.lines.param_ranges import Range


@dataclass(frozen=True, slots=True)
class Held:
    """The elements of a parameter that a rank has: `world`: where they lie in the container; `local`: in this rank's
    shard of it (Megatron's: of the bucket); `within`: in the parameter, flattened."""

    world: Range
    local: Range
    within: Range


@dataclass(frozen=True, slots=True)
class Entry:
    """A parameter: its elements (of the rank's tensor-parallel part), dtype, the container that it lies in (empty: it
    is a tensor of its own), the bucket there, where it lies in it whole, and what the rank has (None: nothing)."""

    name: str
    elements: int
    dtype: str
    container: str
    bucket: int | None
    placed: Range
    held: Held | None


@dataclass(frozen=True, slots=True)
class Container:
    """A flat buffer, or what stands for one: elements with and without padding at its buckets' ends, over how many
    ranks it is divided, this rank's number among them, and the elements of its shard, padding included. Bytes of the
    buffers of weights and gradients (None where that is not said here)."""

    name: str
    elements: int
    unpadded: int
    ranks: int
    rank: int
    owned: int
    buckets: tuple[Range, ...] = ()
    weight_bytes: int | None = None
    gradient_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Layout:
    """The answer of `layout`: of one rank of a plan. Ranges are of elements, [start, end)."""

    strategy: str
    rank: int
    world: int
    containers: tuple[Container, ...]
    entries: tuple[Entry, ...]
    notes: tuple[str, ...] = ()

    def only(self, word: str) -> Layout:
        """The parameters of this name or, if there is none, in whose name the word occurs; their containers alone.

        Raises InputError with the nearest name where there is none.
        """
        names = [one.name for one in self.entries]
        wanted = {word} if word in names else {name for name in names if word.lower() in name.lower()}
        if not word or not wanted:
            near = nearest(word, names)
            fix = f"Did you mean {near}?" if near else ""
            raise InputError([Problem("--param", f"found {word!r}", "a parameter's name, or a part of it", fix)])
        entries = tuple(one for one in self.entries if one.name in wanted)
        inside = {one.container for one in entries}
        return replace(self, entries=entries, containers=tuple(one for one in self.containers if one.name in inside))

    def to_dict(self) -> dict[str, Any]:
        """`{strategy, rank, world, buffers[], parameters[], notes[]}` as plain JSON values."""
        return {
            "strategy": self.strategy,
            "rank": self.rank,
            "world": self.world,
            "buffers": [_container(one) for one in self.containers],
            "parameters": [_entry(one) for one in self.entries],
            "notes": list(self.notes),
        }


def _container(one: Container) -> dict[str, Any]:
    return {
        "name": one.name,
        "elements": one.elements,
        "unpadded": one.unpadded,
        "ranks": one.ranks,
        "rank": one.rank,
        "owned": one.owned,
        "buckets": [list(bucket) for bucket in one.buckets],
        "weight_bytes": one.weight_bytes,
        "gradient_bytes": one.gradient_bytes,
    }


def _entry(one: Entry) -> dict[str, Any]:
    held = one.held
    return {
        "name": one.name,
        "elements": one.elements,
        "dtype": one.dtype,
        "buffer": one.container or None,
        "bucket": one.bucket,
        "placed": list(one.placed),
        "world": list(held.world) if held else None,
        "local": list(held.local) if held else None,
        "param": list(held.within) if held else None,
    }


def whole(name: str, elements: int, dtype: str) -> Entry:
    """A parameter that the rank has whole, as a tensor of its own."""
    every = Range(0, elements)
    return Entry(name, elements, dtype, "", None, every, Held(every, every, every))


def cut(placed: Range, owned: Range) -> Held | None:
    """What a rank that owns `owned` of a container has of a parameter at `placed` there; None where nothing."""
    world = Range(max(placed.start, owned.start), min(placed.end, owned.end))
    return Held(world, world.less(owned.start), world.less(placed.start)) if world.size > 0 else None


def counted(entries: Sequence[Entry]) -> int:
    """Elements that the rank has of these parameters."""
    return sum(one.held.world.size for one in entries if one.held)
