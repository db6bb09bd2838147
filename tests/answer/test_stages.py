"""A pipeline's stages beside the fullest: whichever reserves the most is what the device must give."""

from __future__ import annotations

from dataclasses import replace

from tests.ledger.test_rules_te import LLAMA, te
from trainledger.allocator.conf import Conf
from trainledger.answer.bands import Band
from trainledger.answer.estimate import drawn, estimate, peak_of
from trainledger.answer.stages import Stage, fullest, peaks, stages_of
from trainledger.answer.tables import amounts
from trainledger.plan.schema import Plan


def piped(pp: int = 4) -> Plan:
    """Stages whose first holds the embedding, whose last the output layer; the first has more in flight."""
    model = {**LLAMA, "num_hidden_layers": pp, "vocab_size": 51200}
    return te(model, parallel={"pp": pp, "dp": 1, "world": pp}, batch={"accumulation": pp})


def test_the_first_and_the_last_stage_are_beside_the_fullest() -> None:
    plan = piped()
    ledger = drawn(plan).ledger
    numbers = {one.rank for one in (ledger, *ledger.beside)}
    assert {0, 3} <= numbers
    assert len(numbers) == 1 + len(ledger.beside)
    live = [max(moment.allocated for moment in one.moments) for one in (ledger, *ledger.beside)]
    assert live[0] == max(live)
    assert drawn(plan, 0).ledger.beside == ()


def test_reserved_is_that_of_the_rank_which_reserves_the_most() -> None:
    plan = piped(2)
    answer = estimate(plan)
    each = {rank: peak_of(plan, rank) for rank in (0, 1)}
    most = max(each, key=lambda rank: each[rank].reserved.expected)
    own = answer.ledger.rank
    assert own is not None
    assert answer.peak.allocated == each[own].allocated
    assert answer.peak.reserved == each[most].reserved
    assert answer.peak.reserver == (None if most == own else most)


def test_amounts_name_the_rank_that_reserves_the_most() -> None:
    plan = piped(2)
    ledger = drawn(plan).ledger
    first, *others = stages_of(plan, Stage.of(plan, ledger, None), Conf())
    assert not others  # nothing is replayed
    larger = Band(*(4 * first.peaks[0].reserved.high,) * 3)
    whole, steps = (replace(one, reserved=larger) for one in first.peaks)
    other = Stage(replace(ledger, rank=1), None, (whole, steps))
    found = peaks((first, other))
    assert fullest((first, other)) is other
    assert [one.reserved for one in found] == [larger] * 2
    assert [one.allocated for one in found] == [one.allocated for one in first.peaks]
    assert {one.reserver for one in found} == {1}
    answer = estimate(plan)
    told = replace(answer, peak=replace(answer.peak, reserver=1))
    assert "on rank 1" in {one.name: one for one in amounts(told)}["reserved"].why
