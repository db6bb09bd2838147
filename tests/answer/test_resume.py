"""What ranks of another run read of a checkpoint, format by format, and what they cannot."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.ledger.test_mega_moe import routed
from tests.ledger.test_megatron import LLAMA as MEGATRON
from tests.ledger.test_megatron import plan_of as megatron_plan
from tests.plans import LLAMA, plan_of
from trainledger.answer.disk import beside
from trainledger.answer.estimate import estimate
from trainledger.answer.resume import at_world, resume
from trainledger.answer.resume_read import Resume, Written
from trainledger.answer.saved import saved_of
from trainledger.base.problems import InputError
from trainledger.model.build import model_of
from trainledger.model.counts import kinds
from trainledger.model.program import Role
from trainledger.plan.beyond import Save
from trainledger.plan.schema import Plan

COUNT = estimate(plan_of()).parameters.total
MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
WIDE = {"weights": "fp32", "compute": "bf16", "gradients": "fp32", "reduce": "fp32"}
MAIN = {"gradients": "fp32", "master": "fp32"}


def written(plan: Plan) -> Written:
    answer = estimate(plan)
    return Written(plan, answer.model, beside(answer).checkpoint, saved_of(plan, answer.model, answer.ledger))


def on(plan: Plan, world: int, universal: bool = False) -> Resume:
    other = at_world(plan, world)
    return resume(written(plan), other, model_of(other), universal)


def fsdp(dp: int, strategy: str = "fsdp2", **parts: Any) -> Plan:
    return plan_of(parallel={"strategy": strategy, "dp": dp, **parts}, precision=WIDE, batch={"sequence": 16})


def zero(stage: int, dp: int) -> Plan:
    given = {"strategy": f"zero{stage}", "dp": dp}
    return plan_of(precision=MIXED, parallel=given, stack={"framework": "deepspeed"}, batch={"sequence": 16})


def megatron(resharded: bool = False, **parallel: Any) -> Plan:
    plan = megatron_plan(MEGATRON, parallel=parallel)
    return plan.model_copy(update={"save": Save(resharded=resharded)})


def test_fewer_ranks_read_every_shard_once() -> None:
    found = on(fsdp(4), 2)
    assert found.total == found.stored == 12 * COUNT
    assert found.rank_bytes == 6 * COUNT
    assert found.files == 2 * 2  # of weights, and of the optimizer
    assert found.host == 4 * 1024 * 256 // 4  # the largest shard of a weight


def test_more_ranks_read_shards_that_are_others() -> None:
    found = on(fsdp(4), 8)
    assert (found.rank_bytes, found.files) == (3 * COUNT, 2)
    assert found.total == 2 * found.stored


def test_replicas_read_it_all_again() -> None:
    found = on(fsdp(4, "hsdp", shard=2), 8)
    assert found.total == 4 * found.stored
    assert found.rank_bytes == 6 * COUNT
    assert found.files == 2 * 2  # replicas dealt a shard out among themselves


def test_a_tied_weight_is_read_under_both_names() -> None:
    plan = plan_of({**LLAMA, "tie_word_embeddings": True}, parallel={"strategy": "fsdp2", "dp": 4}, precision=WIDE)
    found = on(plan, 4)
    assert found.total == found.stored == 12 * estimate(plan).parameters.total + 4 * 1024 * 256


def test_files_of_single_ranks_are_read_by_these() -> None:
    roles = {"rollout": {"engine": {"tokens": 4096}}}
    stack = {"framework": "verl", "versions": {"torch": "2.13.0", "transformers": "4.56.0"}}
    batch = {"sequence": 16, "loss_tokens": 8}
    plan = plan_of(task="grpo", roles=roles, batch=batch, stack=stack, parallel={"strategy": "fsdp2", "dp": 4})
    found = on(plan, 4)
    assert (found.files, found.total) == (2, found.stored)
    with pytest.raises(InputError, match="merge the shards first"):
        on(plan, 8)


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 8), st.integers(1, 8))
def test_all_ranks_read_at_least_what_is_stored(before: int, after: int) -> None:
    found = on(fsdp(before), after)
    assert found.total >= found.stored
    assert found.rank_bytes * after >= found.total
    if before % after == 0 and not 256 % before:  # every weight's rows divide
        assert found.total == found.stored


def test_a_whole_state_dict_is_read_by_one() -> None:
    full = {"options": {"state_dict_type": "FULL_STATE_DICT"}}
    found = on(fsdp(4, **full), 2)
    assert found.total == found.rank_bytes == found.stored == 12 * COUNT
    assert found.host == 8 * COUNT
    first = on(plan_of(parallel={"strategy": "fsdp1", "dp": 4}, batch={"sequence": 16}), 2)
    assert first.total == 2 * COUNT * 2 + 4 * COUNT  # weights by every rank


def test_zero_is_read_by_as_many_ranks_as_wrote_it() -> None:
    found = on(zero(2, 4), 4)
    assert found.rank_bytes == 2 * COUNT + 12 * COUNT // 4
    assert found.conversion is None
    with pytest.raises(InputError, match=r"parallel.dp: found 2; the 4 ranks.*--universal"):
        on(zero(2, 4), 2)
    third = zero(3, 4)
    with pytest.raises(InputError, match="zero3"):
        resume(written(zero(2, 4)), third, model_of(third))


def test_once_converted_others_read_it() -> None:
    found = on(zero(2, 4), 1, universal=True)
    assert found.rank_bytes == 2 * COUNT + 12 * COUNT
    assert found.conversion is not None
    assert found.stored == found.conversion.written == 14 * COUNT
    third = on(zero(3, 4), 2, universal=True)
    assert third.rank_bytes >= 12 * COUNT
    with pytest.raises(InputError, match=r"--universal.*fsdp-sharded"):
        on(fsdp(4), 2, universal=True)
    with pytest.raises(InputError, match="--universal"):
        on(plan_of(parallel={"strategy": "ddp", "dp": 2}, stack={"framework": "deepspeed"}), 4, universal=True)


def test_plain_ranks_read_all_of_it() -> None:
    found = on(plan_of(parallel={"strategy": "ddp", "dp": 2}, batch={"sequence": 16}), 4)
    assert (found.rank_bytes, found.files, found.total) == (6 * COUNT, 2, 24 * COUNT)
    alone = on(plan_of(save={"format": "safetensors"}, batch={"sequence": 16}), 2)
    assert (alone.rank_bytes, alone.total, alone.host) == (2 * COUNT, 4 * COUNT, 2 * COUNT)


def test_recipes_read_what_they_wrote() -> None:
    """torchtune's weights stay in their file, its recipe's state does not; LitGPT's one file is read whole."""
    tune = {"framework": "torchtune", "versions": {"torch": "2.6.0", "torchtune": "0.6.1"}, "loss": None}
    found = on(plan_of(stack=tune, batch={"sequence": 16}), 1)
    assert (found.rank_bytes, found.files, found.host) == (6 * COUNT, 2, 4 * COUNT)
    lit = {"framework": "litgpt", "versions": {"torch": "2.13.0", "litgpt": "0.5.13"}, "loss": None}
    found = on(plan_of(stack=lit, batch={"sequence": 16}, task="sft"), 1)
    assert (found.rank_bytes, found.host) == (6 * COUNT, 6 * COUNT)  # without the weights of the end


def test_megatrons_flat_pieces_are_cut_by_other_data_parallel_ranks() -> None:
    plan = megatron(tp=2, world=8)
    count = estimate(plan).parameters.total
    same, fewer = on(plan, 8), on(plan, 4)
    assert same.stored == 14 * count
    share = 12 * count // 2 // 4  # of a part's four data-parallel ranks
    norms = same.rank_bytes - count - share  # which both parts have
    assert 0 <= norms < 0.001 * count
    assert fewer.rank_bytes - same.rank_bytes == pytest.approx(share, rel=0.001)  # with each part's own norms
    assert same.host == pytest.approx(4 * count // 2 // 4, rel=0.001)  # a piece of one state
    assert fewer.files == same.files == 4 * 2  # a part's ranks, two files each
    assert same.total >= same.stored


def test_megatrons_other_degrees_need_states_written_whole() -> None:
    other = megatron(tp=4, world=8)
    with pytest.raises(InputError, match=r"save.resharded: true"):
        resume(written(megatron(tp=2, world=8)), other, model_of(other))
    plan = megatron(True, tp=2, world=8)
    found = resume(written(plan), other, model_of(other))
    count = estimate(plan).parameters.total
    assert found.rank_bytes == pytest.approx(
        (2 + 12) * count / 2, rel=0.001
    )  # the stored halves that overlap a quarter
    again = resume(written(plan), megatron(pp=2, world=8), model_of(other))
    assert again.rank_bytes < found.rank_bytes * 2


def test_experts_of_their_own_ranks_are_read_by_these() -> None:
    """Half of the experts by each of two ranks, as they were written; the dense weights by all."""
    given = {"tp": 1, "ep": 2, "world": 4, "options": {"moe_token_dispatcher_type": "alltoall"}}
    plan = routed(parallel=given)
    found = on(plan, 4)
    experts = sum(weight.elements * count for weight, count in kinds(model_of(plan)) if weight.role is Role.EXPERT)
    count = estimate(plan).parameters.total
    weights = 2 * (count - experts) + 2 * experts // 2
    flat = 12 * (count - experts) // 4 + 12 * experts // 2 // 2  # two ranks have the same experts
    assert found.rank_bytes == pytest.approx(weights + flat, rel=0.01)
    assert found.total == pytest.approx(4 * weights + 12 * count, rel=0.01)  # states once, weights by every rank
    spread = routed(parallel={**given, "tp": 2, "sp": True, "world": 8})
    with pytest.raises(InputError, match=r"parallel.etp"):
        resume(written(spread), spread, model_of(spread))


def test_megatrons_older_format_needs_the_same_parts() -> None:
    plan = megatron(tp=2, world=8)
    plan = plan.model_copy(update={"save": Save(format="megatron-torch")})
    count = estimate(plan).parameters.total
    found = on(plan, 4)
    assert found.rank_bytes == pytest.approx((2 + 12) * count / 2, rel=0.001)
    other = megatron(tp=4, world=8).model_copy(update={"save": plan.save})
    with pytest.raises(InputError, match="tp, pp, ep"):
        resume(written(plan), other, model_of(other))


@pytest.mark.parametrize(
    ("other", "path"),
    [
        (plan_of("llama-3.2-1b"), "model"),
        (zero(2, 4), "save.format"),
        (fsdp(4, "fsdp1"), "save.format"),  # which reads it whole
    ],
)
def test_what_cannot_read_it_is_refused_by_name(other: Plan, path: str) -> None:
    with pytest.raises(InputError) as caught:
        resume(written(fsdp(4)), other, model_of(other))
    assert [one.path for one in caught.value.problems] == [path]


def test_ranks_of_one_sequence_shard_together() -> None:
    given = {"strategy": "zero3", "dp": 2, "cp": 2, "shard": 4, "options": {"cp_comm_type": "ulysses"}}
    plan = plan_of(precision=MIXED, parallel=given, stack={"framework": "deepspeed"})
    parallel = at_world(plan, 8).parallel
    assert (parallel.dp, parallel.shard) == (4, 8)


def test_ranks_that_do_not_divide_are_refused() -> None:
    plan = megatron(tp=2, world=8)
    with pytest.raises(InputError, match="Did you mean 4"):
        at_world(plan, 5)
    with pytest.raises(InputError, match="multiple of 2"):
        at_world(fsdp(4, "hsdp", shard=2), 3)
    with pytest.raises(InputError, match="multiple of 2"):
        at_world(fsdp(4, "hsdp", shard=2), 1)


def test_an_optimizer_without_states_is_read_too() -> None:
    """SGD keeps master weights alone; Megatron-Core's flat pieces and DeepSpeed's conversion have them."""
    sgd = {"name": "sgd", "implementation": None}
    plan = megatron(tp=2, world=8)
    plan = plan.model_copy(update={"optimizer": plan.optimizer.model_copy(update=sgd)})
    assert on(plan, 4).stored == 6 * estimate(plan).parameters.total
    given = {"strategy": "zero2", "dp": 4}
    plan = plan_of(
        precision=MIXED, parallel=given, stack={"framework": "deepspeed"}, batch={"sequence": 16}, optimizer=sgd
    )
    assert on(plan, 2, universal=True).conversion is not None
