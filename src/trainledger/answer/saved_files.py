"""The files of a checkpoint, by format: which tensors are in each, and which rank writes it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainledger.answer.saved import (
    EVERY,
    FIRSTS,
    RANK_0,
    Holds,
    Saved,
    Written,
    gathers,
    one_file,
    packed,
    spread,
)
from trainledger.answer.saved_deepspeed import deepspeed
from trainledger.answer.saved_recipes import adapters, litgpt, recipe_state, torchtune
from trainledger.answer.saved_shards import own_shards, sharded
from trainledger.facts.checkpoints import COLOSSAL_FILE, DIST_FILES, EXPORT, FILE_SIZES
from trainledger.facts.torchtune import NAME as TORCHTUNE
from trainledger.facts.versions import at_least
from trainledger.ledger.strategy import fsdp_of
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan


def written(plan: Plan, saved: Saved) -> Iterator[Written]:
    """The files, with those of an export beside."""
    inner = {
        "safetensors": _whole,
        "adapter": _adapter,
        "trainer": _trainer,
        "torch": _torch,
        "torch-sharded": own_shards,
        "deepspeed": deepspeed,
        "fsdp-full": _full,
        "fsdp-sharded": sharded,
        "colossalai": _colossal,
        "megatron-torch": _megatron,
        "megatron-dist": _dist,
        "torchtune": torchtune,
        "litgpt": litgpt,
    }[saved.format](plan, saved)
    found = list(inner)
    whole = plan.save is None or plan.save.optimizer
    yield from (one for one in found if whole or one.what is not Holds.OPTIMIZER)
    has = any(one.safetensors for one in found)
    asked = plan.parallel.options.get(EXPORT) or (plan.save is not None and plan.save.export)
    if asked and not has:
        yield from _whole(plan, saved)


def _weights(plan: Plan, saved: Saved, again: Sequence[int] = ()) -> Iterator[Written]:
    """Weights in files up to a size, filled in order; one that is larger stands alone. `again`: bytes of tensors under
    a second name."""
    limit = plan.save.file_bytes if plan.save and plan.save.file_bytes else None
    if limit is None:
        version = plan.stack.versions.get("transformers")
        limit = next(one.bytes for one in FILE_SIZES if at_least(version, one.since))
    sizes = packed([*saved.tensors, (tuple(again), 1)], limit)
    for number, size in enumerate(sizes, 1):
        end = "" if len(sizes) == 1 else f"-{number:05d}-of-{len(sizes):05d}"
        yield one_file(f"model{end}.safetensors", Holds.WEIGHTS, size)


def _adapter(plan: Plan, saved: Saved) -> Iterator[Written]:
    if plan.stack.framework == TORCHTUNE:
        yield from (*adapters(saved), recipe_state(saved))
        return
    yield one_file("adapter_model.safetensors", Holds.WEIGHTS, saved.weights + saved.embeddings)
    yield one_file("optimizer.pt", Holds.OPTIMIZER, saved.states)


def _trainer(plan: Plan, saved: Saved) -> Iterator[Written]:
    """The Trainer writes what DeepSpeed and FSDP write, and whole weights beside it where these are gathered."""
    if deepspeed_of(plan):
        yield from deepspeed(plan, saved)
        if plan.parallel.strategy != "zero3" or plan.parallel.options.get(EXPORT):
            yield from _whole(plan, saved)
        return
    if fsdp_of(plan):
        if gathers(plan):
            yield from (*_whole(plan, saved, saved.again), *_full(plan, saved))
        else:
            yield from sharded(plan, saved)
        return
    yield from _whole(plan, saved)
    yield one_file("optimizer.pt", Holds.OPTIMIZER, saved.states)


def _whole(plan: Plan, saved: Saved, again: Sequence[int] = ()) -> Iterator[Written]:
    if plan.adapter is None:
        yield from _weights(plan, saved, again)
    else:
        yield one_file("adapter_model.safetensors", Holds.WEIGHTS, saved.weights + saved.embeddings)


def _torch(plan: Plan, saved: Saved) -> Iterator[Written]:
    yield one_file("model.pt", Holds.WEIGHTS, saved.weights)
    yield one_file("optimizer.pt", Holds.OPTIMIZER, saved.states)


def _full(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Each name of the state dict is gathered to a tensor of its own, tied weights twice."""
    yield one_file("pytorch_model_fsdp.bin", Holds.WEIGHTS, saved.weights + sum(saved.again))
    yield one_file("optimizer.bin", Holds.OPTIMIZER, saved.states)


def _colossal(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Rank 0 gathers weights and states into files up to a size; master weights are made anew from the weights."""
    kept = [(tuple(sum(one.states) for one in weights if one.states), count) for weights, count in saved.layers]
    for name, what, tensors in (("model", Holds.WEIGHTS, saved.tensors), ("optim", Holds.OPTIMIZER, kept)):
        sizes = packed(tensors, COLOSSAL_FILE.bytes)
        yield Written(f"pytorch_{name}-*.bin", what, RANK_0, max(sizes), len(sizes), total=sum(sizes))


def _megatron(plan: Plan, saved: Saved) -> Iterator[Written]:
    ranks = degrees(plan)
    parts = ranks.tp * ranks.pp * ranks.ep
    yield spread("mp_rank_*/model_optim_rng.pt", Holds.WEIGHTS, (saved.rank_weights, saved.weights), parts, FIRSTS)
    name = (
        "mp_rank_*/distrib_optim.pt" if plan.parallel.strategy == "megatron-distopt" else "mp_rank_*/model_optim_rng.pt"
    )
    yield spread(name, Holds.OPTIMIZER, (-(-saved.states // parts), saved.states), parts, FIRSTS)


def _dist(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Every rank writes an equal part of everything, in as many files as it has threads."""
    count = degrees(plan).world * DIST_FILES.threads
    states = saved.states if plan.save is None or plan.save.optimizer else 0
    whole = saved.weights + states
    yield Written(
        "__*_*.distcp", Holds.BOTH if states else Holds.WEIGHTS, EVERY, -(-whole // count), count,
        DIST_FILES.threads, whole,
    )  # fmt: skip
