"""Names of moments are made and read in one place."""

from __future__ import annotations

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.lines.moments import STEPS, in_part, part_of, what_of


def test_a_name_is_read_as_it_was_made() -> None:
    name = in_part("step 2", "backward of layers: 3")
    assert (part_of(name), what_of(name)) == ("step 2", "backward of layers: 3")
    assert (part_of("init"), what_of("init")) == ("init", "")


def test_every_moment_of_an_estimate_is_in_a_part_of_the_run() -> None:
    plan = plan_of(evaluation={}, save={"format": "torch"})
    found = [one.name for one in estimate(plan).ledger.moments]
    assert list(dict.fromkeys(map(part_of, found)))[:3] == ["init", *STEPS]
    assert all(what_of(name) for name in found if part_of(name) in STEPS)
