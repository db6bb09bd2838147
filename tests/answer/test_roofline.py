"""The times add up, move as they should, and are near what published runs measured."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from tests.answer.search_goals import EXPERTS, published, small
from trainledger.answer.roofline import Roofline, Times
from trainledger.answer.search_goal import Goal
from trainledger.answer.search_recipes import rows_of
from trainledger.answer.search_shape import shape_of
from trainledger.answer.search_space import Grid, base_plan, grid_of
from trainledger.facts.search_recipes import PUBLISHED, Published
from trainledger.model.build import model_of
from trainledger.model.counts import active

DENSE = [one for one in PUBLISHED if "ep" not in one.degrees]


def timed(goal: Goal) -> tuple[Grid, Times]:
    """The grid and the times of a goal."""
    base, grid = base_plan(goal), grid_of(goal)
    return grid, Roofline(goal, base, shape_of(model_of(base), base.keys()), grid).times()


def row_of(grid: Grid, policy: str = "none", **degrees: int) -> int:
    """The row of a candidate."""
    rows = rows_of(grid, {"micro_batch": 1, **degrees})
    return next(row for row in rows if grid.candidate(row).policy.name == policy)


def test_the_parts_add_up_and_none_is_negative() -> None:
    _, times = timed(small(model=EXPERTS))
    parts = [getattr(times, one.name) for one in fields(times)]
    assert all((part >= 0).all() for part in parts)
    assert np.allclose(np.sum(parts, axis=0), times.step)
    assert sum(times.of(3).values()) == pytest.approx(times.step[3])


def test_what_is_not_spread_exchanges_nothing() -> None:
    grid, times = timed(small(model=EXPERTS))
    for part, axis in (("tensor", "tp"), ("context", "cp"), ("experts", "ep"), ("bubble", "pp")):
        alone = grid.column(axis) == 1
        assert not getattr(times, part)[alone].any(), part
        if part != "context":  # a ring may hide behind attention
            assert getattr(times, part)[~alone].all(), part


def test_kernels_are_at_least_as_long_as_their_operations_at_the_peak() -> None:
    goal = small()
    _, times = timed(goal)
    tokens = goal.global_batch * goal.sequence
    operations = 6 * active(model_of(base_plan(goal))) * tokens / goal.devices
    assert (times.compute * 1.2 > operations / goal.speeds.peak).all()


def test_more_recompute_takes_longer_and_chunks_shorten_the_bubble() -> None:
    grid, times = timed(small())
    none, block, full = (row_of(grid, name, pp=2) for name in ("none", "block", "full"))
    assert times.again[none] == 0 < times.again[block] < times.again[full]
    one, two = row_of(grid, pp=2), row_of(grid, pp=2, vpp=2)
    assert times.bubble[two] == pytest.approx(times.bubble[one] / 2, rel=0.15)


def test_what_goes_to_the_host_costs_only_what_a_layer_does_not_hide() -> None:
    goal = small()
    base, grid = base_plan(goal), grid_of(goal)
    shape = shape_of(model_of(base), base.keys())
    none, little, much = (np.full((len(grid), len(shape.kinds)), size) for size in (0.0, 1.0, 1e12))
    hosts = [Roofline(goal, base, shape, grid, away).times().host for away in (none, little, much)]
    assert not hosts[0].any()
    assert not hosts[1].any()
    assert hosts[2].all()


@pytest.mark.parametrize("run", DENSE, ids=lambda one: f"{one.models[0]} pp {one.degrees.get('pp', 1)}")
def test_published_speeds_are_near(run: Published) -> None:
    """Dense runs within 35 %: no number of the roofline was chosen for them."""
    goal = published(run)
    grid, times = timed(goal)
    step = min(times.step[row] for row in rows_of(grid, run.degrees))
    speed = goal.global_batch * goal.sequence / step / goal.devices
    assert speed / run.speed == pytest.approx(1, abs=0.35)
