"""Files of shards: who writes what of PyTorch's distributed checkpoint, tied weights, and files of single ranks."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.checkpoint import Checkpoint
from trainledger.answer.disk import beside
from trainledger.answer.estimate import estimate
from trainledger.answer.saved_shards import _dealt

COUNT = estimate(plan_of()).parameters.total


def made(model: Any = LLAMA, **sections: Any) -> Checkpoint:
    return beside(estimate(plan_of(model, batch={"sequence": 16}, **sections))).checkpoint


@pytest.mark.parametrize("replicas", [2, 3, 8])
def test_replicas_deal_tensors_out_as_pytorch_s_planner_does(replicas: int) -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed.checkpoint import _dedup_save_plans as dedup
    from torch.distributed.checkpoint.default_planner import create_default_local_save_plan

    sizes = [(((1 << at % 7) * 96, 40, 4096), 5) for at in range(9)]
    flat = [size for layer, count in sizes for size in layer * count]
    state = {f"tensor.{at}": torch.empty(size, dtype=torch.uint8) for at, size in enumerate(flat)}
    plans = dedup.dedup_save_plans([create_default_local_save_plan(state, rank == 0) for rank in range(replicas)])
    loads = [sum(item.tensor_storage_size() or 0 for item in plan.items) for plan in plans]
    assert _dealt(sizes, replicas) == (max(loads), sum(1 for load in loads if load))


def test_data_parallel_ranks_share_what_all_of_them_hold() -> None:
    found = made(parallel={"strategy": "ddp", "dp": 4}, save={"format": "fsdp-sharded"})
    assert {one.count for one in found.files} == {4}
    assert found.total == 6 * COUNT
    assert found.rank_bytes == pytest.approx(6 * COUNT / 4, rel=0.25)  # the embedding is one tensor


@pytest.mark.parametrize("strategy", ["fsdp1", "fsdp2"])
@pytest.mark.parametrize("word", ["FULL_STATE_DICT", "SHARDED_STATE_DICT"])
def test_a_tied_weight_is_written_under_both_names_by_fsdp(strategy: str, word: str) -> None:
    """Four gloo processes of a tied Llama (552,192 B of weights, 256,000 B of them the embedding): accelerate wrote
    815,821 B of pytorch_model_fsdp.bin, save_pretrained 810,344 B, and distributed checkpoints of 940,660 B with 1.2 kB
    a tensor; the optimizer's 1,122,227 B hold it once."""
    parallel = {"strategy": strategy, "dp": 4, "options": {"state_dict_type": word}}
    apart = {one.name: one.total for one in made(parallel=parallel).files}
    tied = {one.name: one.total for one in made({**LLAMA, "tie_word_embeddings": True}, parallel=parallel).files}
    table = 2 * LLAMA["vocab_size"] * LLAMA["hidden_size"]
    for name, size in apart.items():
        assert tied[name] == (size - 2 * table if name.startswith("optimizer") else size)


def test_a_tied_weight_is_written_once_elsewhere() -> None:
    keys = {**LLAMA, "tie_word_embeddings": True}
    answer = estimate(plan_of(keys, batch={"sequence": 16}))
    assert beside(answer).checkpoint.weights_only == 2 * answer.parameters.total
    assert made(keys, parallel={"strategy": "ddp", "dp": 4}).total == 6 * answer.parameters.total


def test_verl_s_ranks_write_their_own_files() -> None:
    roles = {"rollout": {"engine": {"memory_share": 0.5}}}
    batch = {"sequence": 16, "loss_tokens": 8}
    stack = {"framework": "verl", "versions": {"torch": "2.13.0", "transformers": "4.56.0"}}
    plan = plan_of(task="grpo", roles=roles, batch=batch, stack=stack, parallel={"strategy": "fsdp2", "dp": 4})
    found = beside(estimate(plan)).checkpoint
    assert [one.name for one in found.files] == ["model_world_size_4_rank_*.pt", "optim_world_size_4_rank_*.pt"]
    assert [one.bytes for one in found.files] == pytest.approx([2 * COUNT / 4, 4 * COUNT / 4], rel=0.01)
    assert found.resume.name == "torch-sharded"
