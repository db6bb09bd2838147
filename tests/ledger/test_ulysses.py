"""Ranks that exchange parts of the sequence for heads: what their attention makes, and how it scales."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate

TOKENS = 4096
WIDTH = 32


def found(cp: int, heads: int = 8, keys: int = 2, **more: Any) -> Estimate:
    model = {**LLAMA, "num_attention_heads": heads, "num_key_value_heads": keys, "head_dim": WIDTH}
    parallel: dict[str, Any] = {
        "strategy": "zero3",
        "dp": 1,
        "cp": cp,
        "shard": cp,
        "options": {"cp_comm_type": "ulysses"},
    }
    stack = {
        "framework": "deepspeed",
        "versions": {"transformers": "4.51.3"},
        "recompute": "full",
        "attention": "flash",
    }
    return estimate(plan_of(model, parallel=parallel, batch={"sequence": TOKENS}, stack=stack, **more))


def sizes(answer: Estimate, part: str) -> list[int]:
    """Bytes of lines of attention in whose name the text stands."""
    lines = answer.ledger.lines
    return sorted(line.unit for line in lines if "self_attn.attention: " in line.name and part in line.name)


@pytest.mark.parametrize("cp", [2, 4, 8])
def test_a_rank_has_all_tokens_of_its_share_of_the_heads(cp: int) -> None:
    answer = found(cp)
    queries = TOKENS * (8 // cp) * WIDTH * 2
    keys = TOKENS * max(2 // cp, 1) * WIDTH * 2
    assert set(sizes(answer, "exchanged")) == {queries, keys}
    assert set(sizes(answer, "output")) == {queries}
    assert set(sizes(answer, "logsumexp")) == {TOKENS * (8 // cp) * 4}


def test_keys_of_fewer_heads_than_ranks_are_repeated() -> None:
    assert not sizes(found(2), "repeated for ranks")
    assert set(sizes(found(8), "repeated for ranks")) == {TOKENS // 8 * 8 * WIDTH * 2}


def test_a_single_head_needs_no_copy_head_by_head() -> None:
    queries = TOKENS * 4 * WIDTH * 2
    assert queries in sizes(found(2), "copy")
    own = TOKENS // 8 * 8 * WIDTH * 2  # what is sent, and what came back
    assert set(sizes(found(8), "copy")) == {own}


def test_positions_of_all_ranks_are_gathered_at_every_call() -> None:
    assert set(sizes(found(4), "positions of all ranks")) == {TOKENS * 8}


def test_more_ranks_hold_less() -> None:
    peaks = [found(cp).peak.allocated.expected for cp in (2, 4, 8)]
    assert peaks == sorted(peaks, reverse=True)


def test_what_is_exchanged_dies() -> None:
    ledger = found(4).ledger
    alive: dict[str, int] = {}
    for _, events, repeat, _ in ledger.segments:
        for event in events:
            name = ledger.lines[abs(event) - 1].name
            alive[name] = alive.get(name, 0) + (repeat if event > 0 else -repeat)
    assert not {name: count for name, count in alive.items() if "attention: " in name and count}
