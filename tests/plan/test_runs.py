"""Sets of ranks as runs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from trainledger.plan.runs import Run, joined, run_of


def test_a_run_counts_and_names_its_ranks() -> None:
    run = Run(2, 14, 4)
    assert list(run) == [2, 6, 10, 14]
    assert run.count == 4
    assert 10 in run
    assert 11 not in run
    assert 18 not in run
    assert [str(one) for one in (run, Run(0, 7), run_of(3))] == ["2-14 step 4", "0-7", "3"]


def test_runs_that_continue_one_another_are_one() -> None:
    assert joined([Run(8, 15), Run(0, 7)]) == (Run(0, 15),)
    assert joined([Run(0, 4, 4), Run(8, 12, 4)]) == (Run(0, 12, 4),)
    assert joined([Run(0, 3), Run(8, 11)]) == (Run(0, 3), Run(8, 11))
    assert joined([Run(0, 4, 2), Run(1, 5, 2)]) == (Run(0, 4, 2), Run(1, 5, 2))
    assert joined(map(run_of, (0, 8, 16))) == (Run(0, 16, 8),)


@given(st.sets(st.integers(0, 200)))
def test_no_rank_is_lost_or_made(ranks: set[int]) -> None:
    runs = joined(map(run_of, ranks))
    assert [rank for run in runs for rank in run] == sorted(ranks)
