"""The layout of Megatron-Core's flat buffers on one rank: how a plan wraps its chunks, what the rank owns of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trainledger.answer.check import check, check_model
from trainledger.answer.places import Container, Entry, Held, Layout
from trainledger.base.problems import InputError, Problem
from trainledger.facts.kernels import REFERENCE
from trainledger.facts.meshes import CP, DP, EDP, PP
from trainledger.ledger.mega_buffers import DISTRIBUTED, REPLICATED, parameters_of, wrap_of
from trainledger.ledger.megatron import job_of, rank_of
from trainledger.lines.param_buffers import Buffer, Parameter, Wrap, buffers
from trainledger.lines.param_ranges import Piece, Range, shard
from trainledger.model.build import model_of
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import coordinates, mesh_of
from trainledger.plan.schema import Plan

NUMBERED = "layers are numbered within each model chunk, as Megatron-Core names them"


@dataclass(frozen=True, slots=True)
class Place:
    """Where a rank stands: its number in the world, its pipeline stage, its numbers among the data-parallel ranks (with
    context-parallel ones, which vary fastest) and among those that hold the same experts."""

    rank: int
    stage: int = 0
    dense: int = 0
    expert: int = 0


def megatron(plan: Plan, chunks: Sequence[Sequence[Parameter]], place: Place) -> Layout:
    """The layout of a resolved plan's rank, from the trained parameters of each of its model chunks, as this rank holds
    them, in the order of `named_parameters()`.

    Raises InputError for a strategy without these buffers and for what Megatron-Core refuses.
    """
    if plan.parallel.strategy not in (DISTRIBUTED, REPLICATED):
        allowed = f"{DISTRIBUTED} and {REPLICATED} have Megatron-Core's flat buffers"
        raise InputError([Problem("parallel.strategy", f"found {plan.parallel.strategy!r}", allowed)])
    total = sum(one.elements for chunk in chunks for one in chunk)
    containers, entries = list[Container](), list[Entry]()
    for number, parameters in enumerate(chunks):
        prefix = f"chunk {number}: " if chunks[1:] else ""
        for buffer in _buffers(parameters, wrap_of(plan, place.stage, number, total)):
            inner = (place.expert if buffer.expert else place.dense) % buffer.ranks
            containers.append(_container(buffer, prefix + buffer.name, inner))
            entries += _entries(buffer, prefix + buffer.name, inner)
    return Layout(plan.parallel.strategy, place.rank, degrees(plan).world, tuple(containers), tuple(entries))


def of_plan(plan: Plan, rank: int) -> Layout:
    """The layout of a resolved plan's rank. Raises InputError naming every key that cannot be estimated yet."""
    check(plan)
    model = model_of(plan)
    check_model(plan, model)
    mesh = mesh_of(plan)
    at = coordinates(mesh, rank)
    place = Place(rank, at[PP], at[DP] * mesh.size(CP) + at[CP], at[EDP])
    stage = rank_of(plan, model, job_of(plan, model, REFERENCE), place.stage)
    found = megatron(plan, [tuple(one for _, one in parameters_of(stage, chunk)) for chunk in stage.chunks], place)
    return replace(found, notes=(NUMBERED,)) if mesh.size(PP) > 1 else found


def _buffers(parameters: Sequence[Parameter], wrap: Wrap) -> tuple[Buffer, ...]:
    try:
        return buffers(parameters, wrap)
    except ValueError as error:
        raise InputError([Problem("parallel.options", str(error), "Megatron-Core stops here")]) from None


def _container(buffer: Buffer, name: str, rank: int) -> Container:
    return Container(
        name=name,
        elements=buffer.elements,
        unpadded=buffer.unpadded,
        ranks=buffer.ranks,
        rank=rank,
        owned=buffer.elements // (buffer.ranks if buffer.distributed else 1),
        buckets=tuple(Range(one.start, one.end) for one in buffer.buckets),
        weight_bytes=buffer.weight_bytes,
        gradient_bytes=buffer.gradient_bytes,
    )


def _entries(buffer: Buffer, name: str, rank: int) -> Iterator[Entry]:
    """A buffer's parameters, in its order; without the distributed optimizer the rank has all of each."""
    pieces = {piece.parameter.name: piece for piece in _shard(buffer, rank)} if buffer.distributed else None
    for placed in buffer.placed:
        one, at = placed.parameter, Range(placed.start, placed.end)
        if pieces is None:
            held: Held | None = Held(at, at, Range(0, one.elements))
        else:
            piece = pieces.get(one.name)
            held = Held(piece.world, piece.local, piece.within) if piece else None
        yield Entry(one.name, one.elements, (one.stored or one.dtype).name, name, placed.bucket, at, held)


def _shard(buffer: Buffer, rank: int) -> tuple[Piece, ...]:
    try:
        return shard(buffer, rank)
    except ValueError as error:
        raise InputError([Problem("stack.versions", str(error), "0.13 and later have no such case")]) from None
