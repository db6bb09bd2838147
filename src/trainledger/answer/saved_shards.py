"""Files of shards: PyTorch's distributed checkpoint, in which nothing is written twice, and files of one rank each."""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapreplace

from trainledger.answer.saved import Holds, Saved, Tensors, Written, spread
from trainledger.facts.checkpoints import TWO_FOLDERS
from trainledger.facts.sharding import FIRST
from trainledger.ledger.strategy import fsdp_of
from trainledger.lines.shards import rows_of
from trainledger.model.program import Weight
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan


def sharded(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Every shard once, by one of the ranks that hold it: the one with least to write so far. Accelerate writes weights
    and optimizer to folders of their own."""
    states = plan.save is None or plan.save.optimizer
    weights, kept = _local(plan, saved)
    whole = saved.weights + sum(saved.again)
    if plan.stack.framework in TWO_FOLDERS:
        yield _distributed(plan, "pytorch_model_fsdp_0/__*_0.distcp", Holds.WEIGHTS, weights, whole)
        if states:
            yield _distributed(plan, "optimizer_0/__*_0.distcp", Holds.OPTIMIZER, kept, saved.states)
        return
    both = Holds.BOTH if states else Holds.WEIGHTS
    yield _distributed(
        plan, "__*_0.distcp", both, [*weights, *(kept if states else ())], whole + (saved.states if states else 0)
    )


def staged(plan: Plan, saved: Saved) -> int:
    """Bytes that a rank holds of a checkpoint, and copies to the host where it goes on while they are written: all of
    its shards, whoever writes them."""
    weights, kept = _local(plan, saved)
    return _total(weights) + (_total(kept) if plan.save is None or plan.save.optimizer else 0)


def own_shards(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Each rank's shards in files of its own; replicas write theirs too. FSDP2's names of one weight share a tensor."""
    world, first = degrees(plan).world, fsdp_of(plan) == FIRST
    weights, kept = _local(plan, saved, first)
    for name, what, sizes in (("model", Holds.WEIGHTS, weights), ("optim", Holds.OPTIMIZER, kept)):
        each = _total(sizes)
        yield spread(f"{name}_world_size_{world}_rank_*.pt", what, (each, each * world), world)


def _local(plan: Plan, saved: Saved, again: bool = True) -> tuple[Tensors, Tensors]:
    """What the first rank that shards, whose shards are the largest, holds of weights and of states."""
    ranks = degrees(plan)
    parts = ranks.tp * ranks.pp

    def part(size: int, weight: Weight) -> int:
        held = _rows(weight, ranks.shard)
        return -(-size * held // (weight.elements * parts))

    weights: Tensors = [
        (tuple(part(one.saved, one.weight) for one in every if one.saved), count) for every, count in saved.layers
    ]
    if again:
        weights.append((tuple(-(-size // (ranks.shard * parts)) for size in saved.again), 1))
    kept: Tensors = [
        (tuple(part(size, one.weight) for one in every for size in (one.master, *one.states) if size), count)
        for every, count in saved.layers
    ]
    return weights, kept


def _rows(weight: Weight, ranks: int) -> int:
    """Elements of the largest of the chunks into which rows are cut."""
    if not weight.dims:
        return weight.elements
    rows = weight.shape[0]
    return rows_of(rows, ranks) * (weight.elements // rows)


def _distributed(plan: Plan, name: str, what: Holds, sizes: Tensors, whole: int) -> Written:
    """Files of all ranks that write something: those that hold the same shards deal them out among themselves."""
    ranks = degrees(plan)
    holders = ranks.shard * ranks.tp * ranks.pp
    replicas = max(ranks.world // holders, 1)
    most, writers = _dealt(sizes, replicas)
    return spread(name, what, (most, whole), holders * writers)


def _dealt(sizes: Tensors, replicas: int) -> tuple[int, int]:
    """Bytes of the replica that writes most, and how many write: each tensor goes to the one with least so far."""
    if replicas == 1:
        return _total(sizes), 1
    loads = [0] * replicas
    for layer, count in sizes:
        for size in layer * count:
            heapreplace(loads, loads[0] + size)
    return max(loads), sum(1 for load in loads if load)


def _total(sizes: Tensors) -> int:
    return sum(sum(layer) * count for layer, count in sizes)
