"""What DeepSpeed's save_checkpoint writes, by stage."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.saved import FIRSTS, Holds, Saved, Written, one_file, spread
from trainledger.answer.saved_sizes import dtype_of
from trainledger.facts.checkpoints import PEFT_EXCLUDES
from trainledger.facts.deepspeed import COPIED_SWAP, ZERO3
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import ZERO
from trainledger.plan.schema import Plan

BF16 = "bf16_"  # ahead of the name of the states' file where bf16 is enabled


def deepspeed(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Model states of the first data-parallel ranks (stage 3: of all), and each rank's part of the optimizer."""
    stage = plan.parallel.strategy
    if stage not in ZERO:
        yield one_file("global_step*/mp_rank_00_model_states.pt", Holds.WEIGHTS, saved.weights)
        yield one_file("global_step*/mp_rank_00_model_states.pt (optimizer)", Holds.OPTIMIZER, saved.states)
        return
    yield _frozen(plan, saved) if stage == ZERO3 else _replicated(plan, saved)
    yield _states(plan, saved)


def _states(plan: Plan, saved: Saved) -> Written:
    """Each rank's part, padded. Of an optimizer on NVMe its files there are copied."""
    ranks = degrees(plan)
    count = ranks.shard * ranks.tp * ranks.pp
    mp = "00" if ranks.tp * ranks.pp == 1 else "*"
    name = f"global_step*/{BF16 if plan.precision.weights == 'bf16' else ''}zero_pp_rank_*_mp_rank_{mp}_optim_states.pt"
    swaps = plan.offload.optimizer == "nvme" and plan.parallel.strategy == "zero3"
    if swaps and COPIED_SWAP.holds(plan.stack.versions.get("deepspeed", "")):
        name = "global_step*/offloaded_tensors/rank*/*.tensor.swp"
    return spread(name, Holds.OPTIMIZER, (saved.rank_states, saved.rank_states * count), count)


def _excluded(plan: Plan) -> bool:
    """Whether what an adapter's run does not train is left out: by the Trainer."""
    return plan.adapter is not None and plan.stack.framework in PEFT_EXCLUDES


def _replicated(plan: Plan, saved: Saved) -> Written:
    """All weights of a model-parallel part. Under stage 2 a copy of those that are not trained lies beside them."""
    ranks = degrees(plan)
    parts = ranks.tp * ranks.pp
    whole = saved.weights if _excluded(plan) else max(saved.weights, saved.rank_weights if parts == 1 else 0)
    if plan.parallel.strategy == "zero2" and not _excluded(plan):
        whole += whole - _trained(saved)
    if parts == 1:
        return one_file("global_step*/mp_rank_00_model_states.pt", Holds.WEIGHTS, whole)
    return spread("global_step*/mp_rank_*_model_states.pt", Holds.WEIGHTS, (-(-whole // parts), whole), parts, FIRSTS)


def _trained(saved: Saved) -> int:
    """Bytes of the weights that are trained."""
    return sum(sum(one.saved for one in weights if one.trained) * count for weights, count in saved.layers)


def _frozen(plan: Plan, saved: Saved) -> Written:
    """Each rank's parts of weights that are not trained. All others are empty: what stays whole between steps too is
    partitioned before it is written."""
    ranks = degrees(plan).shard
    size = sum(
        dtype_of(plan, one.weight).bytes_of(-(-one.weight.elements // ranks)) * count
        for weights, count in saved.layers
        for one in weights
        if not one.trained and not _excluded(plan)
    )
    return spread("global_step*/zero_pp_rank_*_mp_rank_00_model_states.pt", Holds.WEIGHTS, (size, size * ranks), ranks)
