"""The files of a checkpoint, by format: which tensors are in each, and which rank writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainledger.answer.saved_sizes import dtype_of, saved_dtype, sized
from trainledger.answer.traffic import resident
from trainledger.base.dims import elements
from trainledger.facts.checkpoints import DEFAULTS, DIST_FILES, EXPORT, FILE_SIZES, STATE_DICT_TYPE
from trainledger.facts.optimizer_bytes import shared_tensors
from trainledger.facts.sharding import FIRST
from trainledger.facts.versions import at_least
from trainledger.ledger.rank import Ledger, trained_of, updates_of
from trainledger.ledger.strategy import fsdp_of
from trainledger.lines.line import Account
from trainledger.lines.shards import rows_of
from trainledger.model.counts import layered
from trainledger.model.program import Model, Weight
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan

RANK_0, EVERY, FIRSTS = "rank 0", "every rank", "one rank of each model-parallel part"
OPTIMIZER = "optimizer"
STATES = (Account.MASTER, Account.OPTIMIZER)


@dataclass(frozen=True, slots=True)
class Written:
    """Files of one kind: `count` of them, `each` by one rank; bytes of the largest and of all."""

    name: str
    what: str
    by: str
    bytes: int
    count: int = 1
    each: int = 1
    total: int = 0


@dataclass(frozen=True, slots=True)
class Saved:
    """Tensors that a checkpoint may hold, of the whole model (bytes): weights of each kind of layer, with the number of
    equal layers; their sum, master weights, optimizer states; of one rank: weights, and master weights with states, as
    it holds them; of the fullest of ranks that shard them, weights with states."""

    format: str
    tensors: tuple[tuple[tuple[int, ...], int], ...]
    weights: int
    master: int
    optimizer: int
    rank_weights: int
    rank_states: int
    fullest: int

    @property
    def states(self) -> int:
        """Master weights and optimizer states."""
        return self.master + self.optimizer


def format_of(plan: Plan) -> str:
    """The format that the plan names, else its framework's."""
    if plan.save and plan.save.format:
        return plan.save.format
    return DEFAULTS.get(plan.stack.framework, "torch")


def inner_format(plan: Plan, name: str) -> str:
    """The format that a checkpoint of this one is made of: the Trainer leaves it to DeepSpeed and FSDP."""
    if name != "trainer" or not (deepspeed_of(plan) or fsdp_of(plan)):
        return name
    return "deepspeed" if deepspeed_of(plan) else "fsdp-full" if _gathers(plan) else "fsdp-sharded"


def saved_of(plan: Plan, model: Model, ledger: Ledger) -> Saved:
    """What there is to save. Of an adapter's run only what it trains is."""
    masters = states = fullest = 0
    for one in sized(plan, model):
        weight, count = one.weight, one.copies
        if one.saved:
            fullest += dtype_of(plan, weight).bytes_of(_part(plan, weight)) * count
        masters += one.master * count
        states += sum(one.states) * count
        fullest += sum(-(-size * _part(plan, weight) // weight.elements) for size in one.states) * count
    states += sum(table.bytes for table in shared_tensors(updates_of(plan).row)) if states else 0
    held = [(line.account, line.dtype.bytes_of(elements(line.dims)) * copies) for line, copies in resident(ledger)]
    tensors = tuple(_tensors(plan, model))
    return Saved(
        format_of(plan), tensors, sum(sum(sizes) * count for sizes, count in tensors), masters, states,
        sum(size for account, size in held if account is Account.WEIGHTS),
        sum(size for account, size in held if account in STATES), fullest,
    )  # fmt: skip


def _tensors(plan: Plan, model: Model) -> Iterator[tuple[tuple[int, ...], int]]:
    trained = trained_of(plan)
    for weights, layers in layered(model):
        yield (
            tuple(
                saved_dtype(plan, dtype_of(plan, weight)).bytes_of(weight.elements)
                for weight in weights
                if plan.adapter is None or trained(weight)
            ),
            layers,
        )


def _part(plan: Plan, weight: Weight) -> int:
    """Elements that the fullest rank holds of a weight which FSDP shards: FSDP2 along its first dim, row by row."""
    ranks = degrees(plan)
    if fsdp_of(plan) == FIRST or not weight.dims:
        return -(-weight.elements // ranks.shard)
    rows = weight.shape[0]
    return rows_of(rows, ranks.shard) * (weight.elements // rows)


def written(plan: Plan, saved: Saved) -> Iterator[Written]:
    """The files, with those of an export beside."""
    inner = {
        "safetensors": _weights,
        "adapter": _adapter,
        "trainer": _trainer,
        "torch": _torch,
        "deepspeed": _deepspeed,
        "fsdp-full": _full,
        "fsdp-sharded": _sharded,
        "megatron-torch": _megatron,
        "megatron-dist": _dist,
    }[saved.format](plan, saved)
    found = list(inner)
    whole = plan.save is None or plan.save.optimizer
    yield from (one for one in found if whole or one.what != OPTIMIZER)
    has = any(one.name.startswith("model") and one.name.endswith("safetensors") for one in found)
    asked = plan.parallel.options.get(EXPORT) or (plan.save is not None and plan.save.export)
    if asked and not has:
        yield from _weights(plan, saved)


def _one(name: str, what: str, size: int, by: str = RANK_0) -> Written:
    return Written(name, what, by, size, total=size)


def _spread(name: str, what: str, sizes: tuple[int, int], count: int, by: str = EVERY) -> Written:
    """Files of several ranks: bytes of the largest, and of all together."""
    return Written(name, what, by, sizes[0], count, 1, sizes[1])


def _weights(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Weights in files up to a size, filled in order; one that is larger stands alone."""
    limit = plan.save.file_bytes if plan.save and plan.save.file_bytes else None
    if limit is None:
        version = plan.stack.versions.get("transformers")
        limit = next(one.bytes for one in FILE_SIZES if at_least(version, one.since))
    sizes = packed(saved.tensors, limit)
    if len(sizes) == 1:
        yield _one("model.safetensors", "weights", sizes[0])
        return
    for number, size in enumerate(sizes, 1):
        yield _one(f"model-{number:05d}-of-{len(sizes):05d}.safetensors", "weights", size)


def packed(tensors: Sequence[tuple[tuple[int, ...], int]], limit: int) -> list[int]:
    """Bytes of the files that layers' tensors (bytes of each, and how many such layers) fill in order up to a limit."""
    sizes: list[int] = []
    held = 0
    for layer, count in tensors:
        for size in layer * count:
            if held and held + size > limit:
                sizes.append(held)
                held = 0
            held += size
    return [*sizes, held]


def _adapter(plan: Plan, saved: Saved) -> Iterator[Written]:
    yield _one("adapter_model.safetensors", "weights", saved.weights)
    yield _one("optimizer.pt", OPTIMIZER, saved.states)


def _trainer(plan: Plan, saved: Saved) -> Iterator[Written]:
    """The Trainer writes what DeepSpeed and FSDP write, and whole weights beside it where these are gathered."""
    if deepspeed_of(plan):
        yield from _deepspeed(plan, saved)
        if plan.parallel.strategy != "zero3" or plan.parallel.options.get(EXPORT):
            yield from _whole(plan, saved)
        return
    if fsdp_of(plan):
        if _gathers(plan):
            yield from (*_whole(plan, saved), *_full(plan, saved))
        else:
            yield from _sharded(plan, saved)
        return
    yield from _whole(plan, saved)
    yield _one("optimizer.pt", OPTIMIZER, saved.states)


def _whole(plan: Plan, saved: Saved) -> Iterator[Written]:
    if plan.adapter is None:
        yield from _weights(plan, saved)
    else:
        yield _one("adapter_model.safetensors", "weights", saved.weights)


def _gathers(plan: Plan) -> bool:
    """Whether FSDP's state dict is whole: as the plan says, else FSDP1's is."""
    word = str(plan.parallel.options.get(STATE_DICT_TYPE) or "").upper()
    return "FULL" in word if word else fsdp_of(plan) == FIRST


def _torch(plan: Plan, saved: Saved) -> Iterator[Written]:
    yield _one("model.pt", "weights", saved.weights)
    yield _one("optimizer.pt", OPTIMIZER, saved.states)


def _deepspeed(plan: Plan, saved: Saved) -> Iterator[Written]:
    ranks, stage = degrees(plan), plan.parallel.strategy
    name = "global_step/zero_pp_rank_*_mp_rank_00_optim_states.pt"
    if stage not in ("zero1", "zero2", "zero3"):
        yield _one("global_step/mp_rank_00_model_states.pt", "weights", saved.weights)
        yield _one("global_step/mp_rank_00_model_states.pt (optimizer)", OPTIMIZER, saved.states)
        return
    if stage != "zero3":
        yield _one("global_step/mp_rank_00_model_states.pt", "weights", saved.weights)
        part = -(-saved.states // ranks.shard)
        yield _spread(name, OPTIMIZER, (part, saved.states), ranks.shard)
        return
    yield _spread(name, OPTIMIZER, (saved.rank_states, saved.rank_states * ranks.shard), ranks.shard)


def _full(plan: Plan, saved: Saved) -> Iterator[Written]:
    yield _one("pytorch_model_fsdp.bin", "weights", saved.weights)
    yield _one("optimizer.bin", OPTIMIZER, saved.states)


def _sharded(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Every shard once: replicas write nothing twice."""
    ranks = degrees(plan)
    count = ranks.shard * ranks.tp * ranks.pp
    states = saved.states if plan.save is None or plan.save.optimizer else 0
    whole = saved.weights + states
    share = -(-saved.fullest * whole // (saved.weights + saved.states or 1))
    parts = ranks.tp * ranks.pp
    yield _spread("__*_0.distcp", "weights and optimizer" if states else "weights", (-(-share // parts), whole), count)


def _megatron(plan: Plan, saved: Saved) -> Iterator[Written]:
    ranks = degrees(plan)
    parts = ranks.tp * ranks.pp * ranks.ep
    yield _spread("mp_rank_*/model_optim_rng.pt", "weights", (saved.rank_weights, saved.weights), parts, FIRSTS)
    name = (
        "mp_rank_*/distrib_optim.pt" if plan.parallel.strategy == "megatron-distopt" else "mp_rank_*/model_optim_rng.pt"
    )
    yield _spread(name, OPTIMIZER, (-(-saved.states // parts), saved.states), parts, FIRSTS)


def _dist(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Every rank writes an equal part of everything, in as many files as it has threads."""
    count = degrees(plan).world * DIST_FILES.threads
    states = saved.states if plan.save is None or plan.save.optimizer else 0
    whole = saved.weights + states
    yield Written(
        "__*_*.distcp", "weights and optimizer" if states else "weights", EVERY, -(-whole // count), count,
        DIST_FILES.threads, whole,
    )  # fmt: skip
