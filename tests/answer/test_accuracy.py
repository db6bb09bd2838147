"""How errors are counted."""

from __future__ import annotations

import pytest

from tests.plans import plan_of
from trainledger.answer.accuracy import Case, Reading, Row, accuracy, error_of, score
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.problems import InputError, Problem


def reading(size: int, rounding: int = 1) -> Reading:
    return Reading("allocated_peak", size, rounding, "max")


def row(error: float, failed: str = "") -> Row:
    return Row("id", "group", "allocated_peak", "max", None if failed else 1, 1, error, failed)


def test_an_error_is_a_fraction_of_what_was_measured() -> None:
    assert error_of(110, reading(100)) == pytest.approx(0.1)
    assert error_of(90, reading(100)) == pytest.approx(-0.1)


def test_within_half_of_the_rounding_there_is_no_error() -> None:
    assert error_of(105, reading(100, rounding=10)) == 0
    assert error_of(106, reading(100, rounding=10)) == pytest.approx(0.06)


def test_a_failed_row_counts_as_an_error_of_one() -> None:
    found = score([row(0.0), row(1.0, "no rule"), row(-0.02)])
    assert (found.n, found.failed, found.max) == (3, 1, 1.0)
    assert found.median == pytest.approx(0.02)
    assert found.bias == pytest.approx(-0.01)


def case(outcome: str, memory: int, assumed: bool = False) -> Case:
    plan = plan_of(device={"name": "a100-80gb", "memory": memory})
    return Case("id", "group", (), outcome, assumed, lambda: estimate(plan))


def test_rows_that_rest_on_an_assumed_length_are_scored_apart_too() -> None:
    def measured(group: str, size: int, *inputs: str) -> Case:
        return Case("id", group, (reading(size),), "fits", False, lambda: estimate(plan_of()), inputs)

    size = accuracy([measured("first", 1)]).rows[0].expected
    assert size
    cases = [measured("first", size), measured("first", size // 2, "batch.sequence"), measured("other", size, "model")]
    found = accuracy(cases)
    assert found.groups["first"]["allocated_peak"].n == 2
    assert found.apart(stated=False)["first"]["allocated_peak"].max == pytest.approx(1.0, rel=1e-6)
    assert found.apart(stated=True)["first"]["allocated_peak"].max == 0
    assert "other" not in found.apart(stated=True)


def test_verdicts_against_what_happened() -> None:
    huge, tiny = 1 << 40, 1 << 20
    found = accuracy(
        [case("oom", huge), case("fits", tiny), case("fits", huge), case("oom", huge, assumed=True)]
    ).verdicts
    assert (found.n, found.false_fits, found.false_alarms, found.assumed) == (4, 1, 1, 1)


def test_each_run_with_a_stated_outcome_says_whether_the_replay_went_as_it_did() -> None:
    huge, tiny = 1 << 40, 1 << 20
    found = accuracy([case("fits", huge), case("fits", tiny), case("oom", tiny), case("oom", tiny, assumed=True)])
    assert [(one.said, one.agrees) for one in found.replays] == [("fits", True), ("oom", False), ("oom", True)]


def test_a_record_that_cannot_be_estimated_is_a_failed_row() -> None:
    def refuse() -> Estimate:
        raise InputError([Problem("task", "found 'ppo'", "sft can be estimated")])

    told: list[str] = []
    found = accuracy([Case("one", "group", (reading(100),), "fits", False, refuse)], told.append)
    (failed,) = found.rows
    assert (failed.error, failed.expected, told) == (1.0, None, ["one"])
    assert "ppo" in failed.failed
    assert found.groups["group"]["allocated_peak"].failed == 1
