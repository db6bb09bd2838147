"""Attention over a ring of ranks: what lies beside it, forward and backward."""

from __future__ import annotations

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate


def names(cp: int, attention: str = "sdpa") -> dict[str, int]:
    stack = {
        "framework": "torchtitan", "versions": {"torchtitan": "00c95c0f5199"}, "attention": attention,
    }  # fmt: skip
    plan = plan_of(
        LLAMA, parallel={"strategy": "fsdp2", "dp": 1, "cp": cp, "shard": cp}, stack=stack, batch={"sequence": 1024}
    )
    return {line.name.rpartition("attention: ")[-1]: line.unit for line in estimate(plan).ledger.lines}


@pytest.mark.parametrize("cp", [2, 4])
def test_keys_and_values_of_all_ranks_lie_beside_the_rank_s_own(cp: int) -> None:
    found = names(cp)
    own = 2 * 2 * (1024 // cp) * 4 * 64  # keys and values, repeated for all heads, in bf16
    assert found["ring: keys and values"] == own
    assert found["ring: keys and values of all ranks"] == cp * own
    assert found["ring: gradients of keys and values received"] == 2 * own
    assert found["ring: result so far"] == 4 * (1024 // cp) * 4 * 64


def test_one_rank_and_flex_attention_have_no_ring() -> None:
    assert not [name for name in names(1) if name.startswith("ring")]
    flex = names(2, "flex")
    assert not [name for name in flex if name.startswith("ring")]
    assert any("whole sequence" in name or "gathered" in name for name in flex)


def test_the_ring_s_result_lies_head_by_head_so_that_the_output_projection_reads_a_copy() -> None:
    """Held against torchtitan 0.2.2 on PyTorch's own allocator with cp 2: its first ranks keep both."""
    assert names(2)["ring: result, token by token"] == 2 * (1024 // 2) * 4 * 64
    assert "ring: result, token by token" not in names(1)
