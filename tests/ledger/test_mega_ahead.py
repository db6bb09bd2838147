"""When Megatron-FSDP's weights are whole: what hooks gather ahead, what goes, and which gradients wait."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_fsdp import sharded
from tests.ledger.test_megatron import LLAMA
from tests.ledger.test_rules_te import live
from trainledger.answer.estimate import estimate
from trainledger.facts.megatron_ahead import QUIET, STAYING
from trainledger.ledger.mega_ahead import BACKWARD, FORWARD, NONE, Group, How, Whole
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

LAYERS = LLAMA["num_hidden_layers"]
GROUPS = tuple(Group(10, (at,), (at,), None if at < 1 else at) for at in range(6))  # the first lies outside of layers
LAYER, ROOT = "gathered weights of a layer", "gathered weights of embedding and output"
SLOPES = "gradients of a layer before they are reduced"


def whole(reach: int, waiting: int = 0, units: int = 0) -> Whole:
    return Whole(GROUPS, How(reach, waiting, units, True, False))


def test_a_hook_gathers_what_comes_next_until_enough_is_ahead() -> None:
    found = whole(15)
    assert found.ask([1], FORWARD) == (2, 3, 4)  # 20 elements ahead are the first that are not fewer
    assert found.let_go([1]) == (-2,)
    assert found.ask([2], FORWARD) == (5,)


def test_in_backward_what_was_there_may_go_as_another_is_gathered() -> None:
    found = whole(15)
    found.there = {0, 1, 2}
    found.loosened()
    assert found.ask([5], BACKWARD) == (-2, -3, 4, 5, 6)
    assert found.let_go([5]) == (-6,)
    assert found.ask([4], BACKWARD) == (3,)


def test_without_a_way_only_its_own_is_gathered() -> None:
    assert whole(100).ask([0], NONE) == (1,)


def test_pairs_hold_two_units_at_most() -> None:
    assert whole(100, units=2).ask([1], FORWARD) == (2, 3)
    assert whole(100, units=2).ask([0], FORWARD) == (1,)


def test_gradients_wait_until_more_do_than_may() -> None:
    found = whole(0, waiting=15)
    assert [found.waits([at]) for at in (5, 4, 3)] == [(), (), (-6,)]
    assert found.reduced() == (-5, -4)
    pairs = whole(0, waiting=100, units=2)
    assert [pairs.waits([at]) for at in (5, 4, 3)] == [(), (), (-6,)]
    both = whole(0, waiting=5, units=2)
    assert [both.waits([at]) for at in (5, 4, 3)] == [(), (-6,), (-5,)]


@pytest.mark.parametrize(
    ("version", "quiet", "staying"),
    [
        ("0.17.1", False, False), ("0.18.0", True, True), ("main@2026-03-22", False, False),
        ("main@2026-04-14", True, False), ("main@2026-06-02", True, True), ("", True, True),
    ],
)  # fmt: skip
def test_changes_by_release_or_by_day(version: str, quiet: bool, staying: bool) -> None:
    assert (QUIET.holds(version), STAYING.holds(version)) == (quiet, staying)


def of_release(release: str, **options: Any) -> Plan:
    plan = sharded("optim_grads_params", options=options)
    return plan.model_copy(update={"stack": plan.stack.model_copy(update={"versions": {"megatron-core": release}})})


def test_all_layers_are_gathered_again_before_the_loss_until_the_first_backward() -> None:
    old, new = (estimate(of_release(release)) for release in ("0.17.1", "0.19.2"))
    for moment, answer, layers in (
        ("step 1: forward", old, LAYERS),
        ("step 2: forward", old, LAYERS),
        ("step 1: forward", new, LAYERS),
        ("step 2: forward", new, 0),
    ):
        assert live(answer, moment).get(LAYER, (0, 0))[1] == layers


def test_what_lies_outside_of_layers_stays_between_steps_from_a_release_on() -> None:
    old, new = (estimate(of_release(release)) for release in ("0.17.1", "0.19.2"))
    moment = "step 2: optimizer"
    assert (ROOT in live(old, moment), ROOT in live(new, moment)) == (False, True)


def test_a_smaller_unit_gathers_less_ahead_and_lets_fewer_gradients_wait() -> None:
    plan = of_release("0.19.2")
    layer = sum(one.elements for one in model_of(plan).blocks[0].weights)
    small = estimate(of_release("0.19.2", suggested_communication_unit_size=2 * layer))
    peaks = {}
    for name, answer in (("default", estimate(plan)), ("small", small)):
        events = [event for segment in answer.ledger.segments for event in segment.events * segment.repeat]
        lines = {line.name: at for at, line in enumerate(answer.ledger.lines)}
        for what in (LAYER, SLOPES):
            there = high = 0
            for event in events:
                there += (event == lines[what] + 1) - (event == -lines[what] - 1)
                high = max(high, there)
            assert there == 0
            peaks[name, what] = high
    assert peaks["default", LAYER] == peaks["default", SLOPES] == LAYERS
    assert peaks["small", LAYER] == 2
    assert peaks["small", SLOPES] == 4  # two wait, one more is pushed behind them, and the next is being made
