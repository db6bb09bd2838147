"""Measured runs as anchors: the difference, the rule that two runs decide, and limits that move with it."""

from __future__ import annotations

import pytest

from tests.answer.test_fit import BASE
from trainledger.answer.anchor import MeasuredRun, Rule, unexplained
from trainledger.answer.changed import Change, planned
from trainledger.answer.estimate import estimate
from trainledger.answer.fit import Wanted, fit
from trainledger.base.problems import InputError
from trainledger.base.units import MIB
from trainledger.facts.fit_knobs import Knob
from trainledger.show.estimate import View
from trainledger.show.fit import document, sections
from trainledger.show.table import plain


def run(micro_batch: int, more: int, metric: str = "reserved", layers: int = 3) -> MeasuredRun:
    """A run that held `more` bytes than its estimate."""
    keys = {**BASE["model"], "num_hidden_layers": layers}
    changes = (Change("batch.micro_batch", micro_batch), Change("model", keys))
    peak = estimate(planned(BASE, changes)).peak
    size = peak.reserved.expected if metric == "reserved" else peak.allocated.expected
    return MeasuredRun(f"run of {micro_batch}", BASE, changes, ((metric, size + more),))


def at(micro_batch: int, sequence: int = 512):
    return planned(BASE, [Change("batch.micro_batch", micro_batch), Change("batch.sequence", sequence)])


def test_one_run_cannot_tell_and_the_most_counts() -> None:
    found = unexplained([run(1, 100 * MIB)])
    assert len(found.rates) == len(Rule)
    band = found.at(at(4))
    assert (band.low, band.expected) == (100 * MIB, 400 * MIB)
    less = unexplained([run(1, -100 * MIB)]).at(at(4))
    assert less.expected == -100 * MIB  # the least that may be taken off
    assert less.low == -400 * MIB


@pytest.mark.parametrize(
    ("runs", "rule", "expected"),
    [
        ([run(1, 64 * MIB), run(3, 64 * MIB)], Rule.CONSTANT, 64),
        ([run(1, 64 * MIB), run(3, 192 * MIB)], Rule.TOKEN, 256),
        ([run(2, 50 * MIB, layers=1), run(2, 100 * MIB, layers=2)], Rule.LAYER, 150),
    ],
)
def test_two_runs_decide(runs: list[MeasuredRun], rule: Rule, expected: int) -> None:
    found = unexplained(runs)
    assert found.rates[0][0] is rule
    assert {one for one, _ in found.rates} <= {rule, Rule.LAYER}  # of equal depth, no run tells this from a constant
    assert found.error == 0
    assert found.at(at(4)).expected == expected * MIB
    assert [one.unexplained for one in found.residuals] == [one.fitted for one in found.residuals]


def test_runs_that_no_rule_meets_widen_the_interval() -> None:
    found = unexplained([run(1, 100 * MIB), run(2, 100 * MIB), run(4, 130 * MIB)])
    band = found.at(at(8))
    assert found.rates[0][0] is Rule.CONSTANT
    assert 0 < found.error < 30 * MIB
    assert band.expected - band.low == band.high - band.expected == found.error


def test_the_nearest_amount_that_all_state() -> None:
    mixed = [run(1, 10 * MIB), run(2, 10 * MIB, "allocated")]
    both = MeasuredRun("both", BASE, (), (*mixed[0].sizes, ("allocated", 5)))
    assert unexplained([both, mixed[1]]).metric == "allocated"
    assert unexplained([both]).metric == "reserved"
    with pytest.raises(InputError, match="--measured"):
        unexplained(mixed)


def test_limits_move_with_what_is_unexplained() -> None:
    plain_limit = fit(BASE, Wanted((Knob.MICRO_BATCH,)))
    more = fit(BASE, Wanted((Knob.MICRO_BATCH,)), unexplained=unexplained([run(1, 300 * MIB), run(2, 600 * MIB)]))
    less = fit(BASE, Wanted((Knob.MICRO_BATCH,)), unexplained=unexplained([run(1, -90 * MIB), run(2, -90 * MIB)]))
    first, fewer, same = (one.limits[0].found.best for one in (plain_limit, more, less))
    assert first is not None
    assert fewer is not None
    assert same is not None
    assert int(fewer.value) < int(first.value) <= int(same.value)
    assert fewer.beside == int(fewer.value) * 300 * MIB
    text = "\n".join(plain(one) for one in sections(more, View()))
    assert "Unexplained: reserved" in text
    assert "per token" in text
    assert document(more)["unexplained"]["rules"][0]["rule"] == "per token"
