"""Where modules are called while a piece runs: forward, again, and backward."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.ledger.blocks import Walked
from trainledger.ledger.book import Book
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.micro import walk
from trainledger.ledger.opening import Job
from trainledger.ledger.rank import trained_of
from trainledger.ledger.run import run_of
from trainledger.ledger.visits import Visit
from trainledger.model.build import build

DOWN, UP = "mlp.down_proj", "mlp.up_proj"


def layer(recompute: Any) -> Walked:
    plan = plan_of(stack={"recompute": recompute})
    model, run = build(plan.keys()), run_of(plan, "sm80")
    job = Job(Book(), model, run, trained_of(plan))
    return walk(job, Leaves(True, run.gradients, {}))[0].layers[1]


def names(visits: tuple[Visit, ...]) -> list[str]:
    return [visit.call.name for visit in visits if visit.call.module and not visit.done]


def test_forward_calls_modules_in_the_order_of_the_program() -> None:
    found = names(layer("none").visits.forward)
    assert found[:2] == ["input_layernorm", "self_attn.q_proj"]
    assert found[-4:] == ["mlp.gate_proj", "mlp.act_fn", UP, DOWN]


def test_backward_calls_them_in_the_opposite_order() -> None:
    walked = layer("none")
    assert names(walked.visits.backward) == names(walked.visits.forward)[::-1]


@pytest.mark.parametrize("recompute", ["none", {"kind": "full", "reentrant": False}])
def test_places_rise_and_lie_within_the_events(recompute: Any) -> None:
    walked = layer(recompute)
    for visits, events in ((walked.visits.forward, walked.forward), (walked.visits.backward, walked.backward)):
        places = [visit.at for visit in visits]
        assert places == sorted(places)
        assert 0 <= places[0] <= places[-1] <= len(events)


def test_the_last_module_begins_before_the_forward_that_runs_again_and_is_left_inside_it() -> None:
    visits = layer({"kind": "full", "reentrant": False}).visits.backward
    began = [visit for visit in visits if visit.call.name == DOWN and not visit.done]
    assert [visit.again for visit in began] == [False, True]
    assert began[0].at == 0
    assert [visit.again for visit in visits if visit.call.name == DOWN and visit.done] == [False]
    assert sum(visit.call.name == UP and visit.done for visit in visits) == 2


def test_with_reentrance_the_whole_forward_runs_first() -> None:
    visits = layer({"kind": "full", "reentrant": True}).visits.backward
    again = [visit for visit in visits if visit.again]
    assert tuple(again) == visits[: len(again)]
    assert sum(visit.call.name == DOWN and visit.done for visit in again) == 1


def test_a_gradient_is_whole_before_its_module_returns() -> None:
    walked = layer("none")
    ends = {weight: visit.at for visit in walked.visits.backward if visit.done for weight in visit.call.weights}
    assert all(one.at <= ends[one.weight] for one in walked.arrived)
