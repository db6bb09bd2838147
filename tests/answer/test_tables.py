"""What is shown adds up: entries to the moment, accounts to the entries, bars to their width."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.plans import plan_of
from trainledger.answer import tables
from trainledger.answer.disk import elsewhere
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.tables import (
    amounts,
    by_account,
    cells,
    entries,
    moment_of,
    rank_of,
    roles_of,
    timeline,
    total,
)
from trainledger.base.problems import InputError
from trainledger.lines.line import Account
from trainledger.plan.runs import Run


@pytest.fixture(scope="module")
def answer() -> Estimate:
    """Full fine-tuning of a small model over four ranks."""
    return estimate(plan_of(parallel={"strategy": "ddp", "world": 4}, optimizer={"name": "adamw", "grad_clip": 1.0}))


def test_entries_add_up_to_every_moment(answer: Estimate) -> None:
    for moment in answer.ledger.moments:
        found = entries(answer.ledger, moment)
        assert total(found) == moment.allocated
        assert all(moment.name in entry.live for entry in found)
        rows = by_account(found)
        assert total([entry for row in rows for entry in row.entries]) == moment.allocated
        assert sum(row.bytes for row in rows) == moment.allocated
        assert sum(row.share for row in rows) == pytest.approx(1)
        assert [row.bytes for row in rows] == sorted((row.bytes for row in rows), reverse=True)


def test_every_entry_is_there_when_asked_for(answer: Estimate) -> None:
    peak = moment_of(answer)
    every = entries(answer.ledger, peak, every=True)
    assert [entry for entry in every if entry.copies] == list(entries(answer.ledger, peak))
    assert Account.CLIP in {entry.line.account for entry in every}
    seen = {(entry.line.account, entry.line.name, entry.line.dims, entry.line.dtype.name) for entry in every}
    assert len(seen) == len(every)


def test_entries_of_nothing_have_no_share() -> None:
    assert by_account(()) == ()


def test_the_timeline_marks_the_peak(answer: Estimate) -> None:
    rows = timeline(answer)
    assert [row.name for row in rows] == [moment.name for moment in answer.ledger.moments]
    (peak,) = (row for row in rows if row.is_peak)
    assert (peak.share, peak.name, peak.allocated) == (1, answer.peak.moment, answer.peak.allocated.expected)


@given(st.lists(st.floats(0, 1), max_size=20), st.integers(1, 200))
def test_bars_are_never_longer_than_asked(shares: list[float], width: int) -> None:
    bars = cells(shares, width)
    assert all(0 <= bar <= width for bar in bars)
    assert cells(sorted(shares), width) == tuple(sorted(bars))


def test_amounts_say_how_they_are_known(answer: Estimate) -> None:
    found = {amount.name: amount for amount in amounts(answer)}
    assert found["allocated"].basis == "counted"
    assert (found["reserved"].basis, found["device"].basis) == ("counted", "assumed")
    assert "communicators of 4 ranks" in found["device"].why


def test_ranks(answer: Estimate) -> None:
    (role,) = roles_of(answer, "2")
    assert (role.ranks, role.allocated) == ((Run(0, 3),), answer.peak.allocated.expected)
    assert (rank_of(answer), rank_of(answer, "2"), rank_of(answer, "all")) == (0, 2, 0)
    for wrong in ("4", "-1", "one", "²", "9" * 5000):
        with pytest.raises(InputError):
            roles_of(answer, wrong)


def test_a_moment_by_name(answer: Estimate) -> None:
    assert moment_of(answer).name == answer.peak.moment
    assert moment_of(answer, " Init ").name == "init"
    with pytest.raises(InputError, match="Did you mean 'init'"):
        moment_of(answer, "innit")


def test_a_checkpoint_has_no_padding() -> None:
    for precision, each in (
        ({"weights": "bf16", "gradients": "bf16"}, (2, 6)),
        ({"weights": "fp32", "gradients": "fp32"}, (4, 12)),
        ({"weights": "bf16", "gradients": "bf16", "master": "fp32"}, (2, 14)),
    ):
        answer = estimate(plan_of(precision={**precision, "compute": "bf16"}))
        found, parameters = elsewhere(answer), answer.parameters.total
        assert (found.weights_only, found.checkpoint) == (each[0] * parameters, each[1] * parameters)
        assert (found.host, found.paged) == (0, 0)


def test_what_is_not_trained_has_no_states_on_disk() -> None:
    answer = estimate(plan_of(trainable=["lm_head"]))
    found = elsewhere(answer)
    assert found.checkpoint == found.weights_only + 4 * answer.parameters.trainable


def test_paged_states_are_told_apart() -> None:
    found = elsewhere(estimate(plan_of(optimizer={"name": "paged-adamw-8bit", "implementation": None})))
    assert 0 < found.paged == found.host < found.checkpoint


def test_ranks_that_differ_are_the_fullest_and_the_emptiest() -> None:
    parallel = {"strategy": "zero2", "world": 3, "dp": 3, "options": {"reduce_bucket_size": 1000}}
    precision = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
    plan = plan_of(parallel=parallel, precision=precision, batch={"sequence": 16})
    found = roles_of(estimate(plan))
    assert [role.allocated for role in found] == sorted((role.allocated for role in found), reverse=True)
    assert len({role.ranks for role in found}) == len(found) == 2
    (asked,) = roles_of(estimate(plan, found[1].ranks[0].first), str(found[1].ranks[0].first))
    assert asked.allocated == found[1].allocated


def test_one_ranks_role_is_replayed_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    parallel = {"strategy": "zero2", "world": 3, "dp": 3, "options": {"reduce_bucket_size": 1000}}
    plan = plan_of(parallel=parallel, batch={"sequence": 16})
    every = roles_of(estimate(plan))
    monkeypatch.setattr(tables, "peak_of", None)
    for role in every:
        rank = role.ranks[0].first
        assert roles_of(estimate(plan, rank), str(rank)) == (role,)
