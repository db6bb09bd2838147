"""The layout of FSDP's, DeepSpeed's and replicated parameters on one rank: the same maps that the ledger counts by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from trainledger.answer.check import check, raise_if
from trainledger.answer.places import Container, Entry, Layout, counted, cut, whole
from trainledger.base.problems import Problem
from trainledger.facts.dtypes import DType
from trainledger.facts.kernels import REFERENCE
from trainledger.facts.sharding import FIRST, SECOND
from trainledger.ledger.book import Book
from trainledger.ledger.fsdp1_how import Flat
from trainledger.ledger.layout import Layout as Kept
from trainledger.ledger.layout_amp import MixedPrecision
from trainledger.ledger.layout_bf16 import Bf16
from trainledger.ledger.layout_flat import FlatSharded
from trainledger.ledger.layout_fsdp2 import Sharded
from trainledger.ledger.layout_lowlevel import LowLevelZero
from trainledger.ledger.layout_zero import ZeroFlat
from trainledger.ledger.layout_zero3 import ZeroParts
from trainledger.ledger.opening import Job
from trainledger.ledger.rank import trained_of, updates_of
from trainledger.ledger.registered import Slot, slots_of
from trainledger.ledger.run import run_of
from trainledger.ledger.strategy import fsdp_of, layout_of, least_of
from trainledger.ledger.units import Member, Unit, Units
from trainledger.lines.param_ranges import Range
from trainledger.lines.shards import rows_at, rows_of
from trainledger.model.build import model_of
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

ONE_BY_ONE = "every parameter by itself"


def sharded(plan: Plan, rank: int) -> Layout:
    """The layout of a plan that the ledger has a layout for. Raises InputError naming every key that it has not."""
    check(plan)
    raise_if(list(_problems(plan)))
    model = model_of(plan)
    job = Job(Book(), model, run_of(plan, REFERENCE), trained_of(plan))
    kept = layout_of(plan, job, updates_of(plan), None, rank)
    if isinstance(kept, LowLevelZero | MixedPrecision):
        raise_if([Problem("stack.framework", "found 'colossalai'", "what of a parameter a rank has is not shown")])
    if isinstance(kept, Sharded) and kept.how.routed is not None and kept.how.routed.by_width:
        raise_if([Problem("parallel.shard", f"found {kept.how.ranks}", "where experts lie by width is not shown")])
    slots = [slot for slot in slots_of(model) if job.trained(slot.weight)]
    containers, entries = _found(kept, slots, rank)
    return Layout(plan.parallel.strategy, rank, degrees(plan).world, tuple(containers), tuple(entries))


def _problems(plan: Plan) -> Iterator[Problem]:
    flat = plan.parallel.strategy in ("zero1", "zero2", "fsdp1")
    ranks = degrees(plan)
    for name, degree in (("tp", ranks.tp), ("pp", ranks.pp), ("ep", ranks.ep)):
        if degree > 1 and fsdp_of(plan) == SECOND:
            yield Problem(f"parallel.{name}", f"found {degree}", "where FSDP2's parts beside it lie is not shown")
    if plan.quantization is not None:
        yield Problem("quantization.kind", f"found {plan.quantization.kind!r}", "packed weights' layout is not shown")
    if fsdp_of(plan) == FIRST and least_of(plan) is not None:
        found = f"found {plan.parallel.options['auto_wrap_policy']!r}"
        yield Problem("parallel.options.auto_wrap_policy", found, "where units of modules lie is not shown")
    if flat and plan.adapter is not None:
        allowed = f"in which order {plan.parallel.strategy} flattens adapters is not known"
        yield Problem("adapter.kind", f"found {plan.adapter.kind!r}", allowed)


def _found(kept: Kept, slots: Sequence[Slot], rank: int) -> tuple[list[Container], list[Entry]]:
    if isinstance(kept, Sharded):
        entries = [_rows(slot, kept.stored(slot.weight), (kept.how.ranks, kept.how.rank)) for slot in slots]
        padded = [slot.size // _count(slot) * rows_of(_count(slot), kept.how.ranks) for slot in slots]
        return [_each(slots, padded, (kept.how.ranks, kept.how.rank), counted(entries))], entries
    if isinstance(kept, FlatSharded):
        return _units(kept, slots, rank)
    if isinstance(kept, ZeroFlat | Bf16):
        return _groups(kept)
    if isinstance(kept, ZeroParts):
        ranks = kept.how.ranks
        parts, at = [kept.part(slot) for slot in slots], (kept.how.rank or 0) % ranks
        entries = [_part(slot, kept.stored(slot.weight), part, at) for slot, part in zip(slots, parts, strict=True)]
        return [_each(slots, parts, (ranks, at), sum(parts))], entries
    return [], [whole(name_of(slot), slot.size, kept.stored(slot.weight).name) for slot in slots]


def name_of(slot: Slot) -> str:
    """The parameter's name in the model, with its layer's number."""
    return _named(slot.prefix, slot.weight.name, slot.at)


def _named(prefix: str, name: str, at: int) -> str:
    return prefix.replace("*", str(at - 1)) + name


def _each(slots: Sequence[Slot], parts: Iterable[int], place: tuple[int, int], owned: int) -> Container:
    """What stands for one where parameters are spread by themselves. `parts`: elements of the fullest part of each."""
    ranks, rank = place
    return Container(ONE_BY_ONE, sum(parts) * ranks, sum(slot.size for slot in slots), ranks, rank, owned)


def _count(slot: Slot) -> int:
    return slot.weight.flat[0].size if slot.weight.flat else 1


def _rows(slot: Slot, dtype: DType, place: tuple[int, int]) -> Entry:
    """FSDP2: rows of dim 0, as torch.chunk spreads them."""
    ranks, rank = place
    rows = _count(slot)
    width, most = slot.size // rows, rows_of(rows, ranks)
    start = min(rank * most, rows) * width
    owned = Range(start, start + rows_at(rows, ranks, rank) * width)
    return _alone(slot, dtype, owned)


def _part(slot: Slot, dtype: DType, part: int, rank: int) -> Entry:
    """ZeRO-3: as many elements on every rank, the last ones padding."""
    return _alone(slot, dtype, Range(rank * part, (rank + 1) * part))


def _alone(slot: Slot, dtype: DType, owned: Range) -> Entry:
    every = Range(0, slot.size)
    return Entry(name_of(slot), slot.size, dtype.name, ONE_BY_ONE, None, every, cut(every, owned))


def _groups(kept: ZeroFlat | Bf16) -> tuple[list[Container], list[Entry]]:
    """ZeRO-1 and -2: the optimizer's groups, each flat, in equal parts."""
    containers, entries = list[Container](), list[Entry]()
    ranks, rank = kept.how.ranks, kept.how.rank or 0
    for number, group in enumerate(kept.groups, 1):
        name, start = f"group {number}", 0
        owned = Range(rank * group.part, (rank + 1) * group.part)
        for slot in group.slots:
            placed, dtype = Range(start, start + slot.size), kept.stored(slot.weight).name
            entries.append(Entry(name_of(slot), slot.size, dtype, name, None, placed, cut(placed, owned)))
            start = placed.end
        containers.append(Container(name, group.part * ranks, start, ranks, rank, group.part))
    return containers, entries


def _units(kept: FlatSharded, slots: Sequence[Slot], rank: int) -> tuple[list[Container], list[Entry]]:
    """FSDP1: each unit's flat parameter, in the order in which its modules register theirs, in equal parts."""
    how, order = kept.how, {name_of(slot): number for number, slot in enumerate(slots)}
    pieces, containers, entries = _pieces(kept), list[Container](), list[Entry]()
    for at, unit in _placed(kept.units):
        members = dict(_members(unit, at, pieces))
        if not members.keys() <= order.keys():
            continue  # frozen
        names = sorted(members, key=order.__getitem__)
        one = Unit(unit.name, tuple(members[name] for name in names))
        name = f"{unit.name}, layer {at - 1}" if 0 < at < kept.units.last else unit.name
        containers.append(_flat(how, one, name, rank % how.ranks))
        entries += _flattened(how, one, names, containers[-1])
    ignored = [slot for slot in slots if slot.weight in kept.units.ignored]
    entries += [whole(name_of(slot), slot.size, kept.stored(slot.weight).name) for slot in ignored]
    return containers, entries


def _pieces(kept: FlatSharded) -> dict[tuple[str, str], list[int]]:
    """The pieces of the model that have a parameter of this prefix and name, in order."""
    found: dict[tuple[str, str], list[int]] = {}
    for slot in slots_of(kept.job.model):
        found.setdefault((slot.prefix, slot.weight.name), []).append(slot.at)
    return found


def _members(unit: Unit, at: int, pieces: Mapping[tuple[str, str], list[int]]) -> Iterator[tuple[str, Member]]:
    """A unit's parameters by name. Where it holds those of all layers, each one's come in the order of the layers."""
    seen = Counter[tuple[str, str]]()
    for member in unit.members:
        key = (member.prefix, member.weight.name)
        yield _named(*key, at or pieces[key][seen[key]]), member
        seen[key] += 1


def _placed(units: Units) -> Iterator[tuple[int, Unit]]:
    for at in sorted(units.own):
        for unit in units.own[at]:
            yield at, unit
    if units.root:
        yield 0, units.root


def _flat(how: Flat, unit: Unit, name: str, rank: int) -> Container:
    lengths = [how.length(unit, member.weight) for member in unit.members]
    return Container(name, how.size(unit), sum(lengths), how.ranks, rank, how.part(unit))


def _flattened(how: Flat, unit: Unit, names: Sequence[str], flat: Container) -> Iterator[Entry]:
    owned = Range(flat.rank * flat.owned, (flat.rank + 1) * flat.owned)
    for name, (member, start) in zip(names, how.offsets(unit), strict=True):
        size = how.length(unit, member.weight)
        placed = Range(start, start + size)
        yield Entry(name, size, how.kept(unit).name, flat.name, None, placed, cut(placed, owned))
