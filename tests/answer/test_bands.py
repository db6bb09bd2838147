"""Bands of a peak: what is assumed is left out of their low ends, in estimates and in searches alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.ledger.test_experts_torchtitan import MOE
from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import drawn, estimate
from trainledger.answer.search_exact import exact
from trainledger.answer.search_kept import _over
from trainledger.answer.search_probes import _besides
from trainledger.base.sources import Basis
from trainledger.ledger.book import Book
from trainledger.ledger.rank import Ledger
from trainledger.plan.schema import Plan

TOKENS = 2048
WIDE, SLOTS, ARRAYS, INT64 = 2048, 2, 9, 8
SORT = ARRAYS * INT64 * TOKENS * SLOTS * WIDE
SPRING, OLD = "1690e0ae", "2025-09-17"
EXPERTS = {**MOE, "hidden_size": WIDE, "num_hidden_layers": 2}


def titan(model: dict[str, Any], version: str = SPRING, device: Any = "b200", **stack: Any) -> Plan:
    given = {"framework": "torchtitan", "versions": {"torchtitan": version}, "recompute": "full", **stack}
    return plan_of(model, batch={"micro_batch": 1, "sequence": TOKENS}, stack=given, device=device)


def test_low_ends_are_without_the_sort_behind_experts_as_far_as_no_other_instant_is_larger() -> None:
    answer = estimate(titan(EXPERTS))
    lines, moments = answer.ledger.lines, answer.ledger.moments
    least = max(
        one.allocated - sum(lines[at].unit * times for at, times in one.live if lines[at].basis is Basis.ASSUMED)
        for one in moments
    )
    spared = max(one.allocated for one in moments) - least
    assert 0 < spared <= SORT
    assert answer.peak.spared == spared
    for band in (answer.peak.allocated, answer.peak.reserved):
        assert band.expected - band.low >= spared


def test_nothing_of_experts_is_left_out_before_they_were_added_up_so() -> None:
    answer = estimate(titan(EXPERTS, OLD))
    assert answer.peak.spared == 0
    assert not any(line.basis is Basis.ASSUMED and "experts" in line.name for line in answer.ledger.lines)


@pytest.mark.parametrize(
    ("version", "loss", "assumed"),
    [(SPRING, "chunked", True), (SPRING, "full-fp32", False), ("c14ab776ce87", "chunked", False)],
)
def test_logits_of_all_tokens_are_assumed_where_head_and_loss_run_by_chunks(
    version: str, loss: str, assumed: bool
) -> None:
    vocab = 64_000
    plan = titan({**LLAMA, "vocab_size": vocab}, version, loss=loss)
    lines = [line for line in drawn(plan).ledger.lines if line.account == "logits_and_loss"]
    found = [line.unit for line in lines if line.basis is Basis.ASSUMED]
    assert lines
    assert found == ([2 * TOKENS * vocab] if assumed else [])


def test_an_estimate_and_a_search_say_tight_where_it_would_fit_without_the_sort() -> None:
    whole = estimate(titan(EXPERTS))
    between = whole.device.low + whole.peak.spared // 2
    plan = titan(EXPERTS, device={"name": "b200", "memory": between})
    answer = estimate(plan)
    assert answer.verdict.outcome == "tight"
    assert exact(plan, between).outcome == "tight"
    assert drawn(plan).least.low < between < drawn(plan).least.expected


def test_bounds_of_searches_leave_out_what_is_assumed() -> None:
    ledger = drawn(titan(EXPERTS)).ledger
    counted = tuple(replace(line, basis=Basis.COUNTED) for line in ledger.lines)
    sure = replace(ledger, lines=counted)

    def most(given: Ledger) -> int:
        return _over(cast(Book, given), given.segments)[-1]

    forward = "step 2: forward"
    assert _besides(sure)[forward] - _besides(ledger)[forward] == SORT
    assert 0 < most(sure) - most(ledger) <= SORT
