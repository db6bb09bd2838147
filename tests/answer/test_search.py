"""A search finds the fastest plans that fit, its front holds, and published runs are among the best that it knows."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest

from tests.answer.search_goals import published, small, template
from trainledger.answer.search import Search, search
from trainledger.answer.search_answer import Answer, How, Progress
from trainledger.answer.search_exact import Exact, exact_of, replayed
from trainledger.answer.search_goal import Goal, goal_of, plan_of
from trainledger.answer.search_recipes import recipes_of
from trainledger.answer.search_refine import refined
from trainledger.answer.search_space import grid_of
from trainledger.facts.catalogue import find_model
from trainledger.facts.search_recipes import PUBLISHED, Published
from trainledger.importers.search_template import template_of

TOP, LIMIT = 3, 12
Few = tuple[Answer, list[Progress], dict[str, Exact]]


def of_published(run: Published) -> Search:
    """The search of a published run's goal; of recompute policies those that latent attention alone has, and none."""
    alike = (one.models == run.models and one.with_keys == run.with_keys for one in PUBLISHED)
    return _of_published(next(number for number, same in enumerate(alike) if same))


@cache
def _of_published(number: int) -> Search:
    goal = published(PUBLISHED[number])
    few = tuple(one for one in goal.policies if one.name in ("none", "selective mla_up_proj mlp"))
    return Search(replace(goal, policies=few) if "ep" in goal.space.degrees and goal.sizes.experts else goal, How())


def goal_that_is_tight() -> Goal:
    """Llama 3.2 1B on eight cards of 24 GB, by the frameworks that have few plans."""
    keys = {**find_model("llama-3.2-1b").keys(), "name": "llama-3.2-1b"}
    return goal_of(template(keys, "deepspeed"), "8xrtx4090", 64, 4096)


@pytest.fixture(scope="module")
def few() -> Few:
    """A small search, what it told of its progress, and its store."""
    told: list[Progress] = []
    store: dict[str, Exact] = {}
    return search(small(), How(top=TOP, limit=LIMIT, report=told.append, store=store)), told, store


def test_the_ranked_plans_are_the_fastest_that_fit() -> None:
    goal = goal_that_is_tight()
    found = search(goal, How(top=TOP))
    every = Search(goal, How())
    exact = [exact_of((goal, every.grid.candidate(row))) for row in range(len(every.grid))]
    fitting = sorted(float(every.step[row]) for row, one in enumerate(exact) if one.fits)
    assert 0 < len(fitting) < len(every.grid)
    assert [one.step for one in found.ranked] == pytest.approx(fitting[: len(found.ranked)])
    assert all(one.exact.fits and one.exact.replayed for one in found.ranked)
    assert found.counts.exact < found.counts.candidates


def test_a_ranked_plan_says_what_estimate_says() -> None:
    goal = goal_that_is_tight()
    best = search(goal, How(top=1)).ranked[0]
    assert best.exact == replayed(plan_of(goal, best.candidate))


def test_the_front_falls_with_time(few: Few) -> None:
    found, *_ = few
    assert len(found.front) > 1
    for faster, slower in pairwise(found.front):
        assert faster.step <= slower.step
        assert faster.exact.device.expected > slower.exact.device.expected


def test_progress_is_told_and_the_limit_kept(few: Few) -> None:
    found, told, _ = few
    assert told[0].exact == 0
    assert told[0].candidates == found.counts.candidates
    assert found.counts.exact <= LIMIT
    assert told[-1].best is not None
    bests = [one.best.step for one in told if one.best]
    assert bests == sorted(bests, reverse=True)


def test_what_the_store_has_is_not_estimated_again(few: Few) -> None:
    first, _, store = few
    size = len(store)

    def refuse(*given: object) -> list[Exact]:
        assert not list(given[-1]), "estimated again"  # type: ignore[call-overload]
        return []

    second = search(small(), How(top=TOP, limit=LIMIT, store=store, run=refuse))
    assert len(store) == size > 0
    assert second.ranked == first.ranked


@pytest.mark.parametrize(
    "run", PUBLISHED, ids=lambda one: f"{one.models[0]} on {one.devices}, pp {one.degrees.get('pp', 1)}"
)
def test_published_runs_fit_and_are_in_the_best_tenth(run: Published) -> None:
    one = of_published(run)
    found = next(each for each in recipes_of(one.goal, one.grid, one._sought) if each.published is run)
    assert found.found is not None
    assert found.found.exact.fits
    assert found.share <= 0.1
    assert not found.differs


def test_a_solved_pipeline_fits_and_is_not_slower() -> None:
    pytest.importorskip("highspy")
    keys = {**find_model("llama-3.2-1b").keys(), "num_hidden_layers": 15, "name": "fifteen layers"}
    goal = goal_of(template(keys), "8xrtx4090", 64, 4096)
    one = Search(goal, How())
    rows = [row for row in one.order if one.grid.candidate(row).pp == 4 and one.grid.candidate(row).vpp == 1]
    given = one.grid.candidate(rows[0])
    before, solved = exact_of((goal, given)), refined(goal, given)
    if solved is None:
        assert before.fits  # as good as it was
        return
    chosen, exact = solved
    assert exact.fits
    assert exact == replayed(plan_of(goal, chosen))
    assert (chosen.layout, chosen.policy.name) != (given.layout, given.policy.name)


@pytest.mark.parametrize(("devices", "batch"), [(1, 128), (7, 133), (64, 128), (96, 192), (200, 200)])
def test_the_batch_that_is_taken_where_none_is_given_is_legal(devices: int, batch: int) -> None:
    """Under ZeRO every device holds a replica's part: no other batch than a multiple of the devices is legal."""
    goal = goal_of(template_of(["llama-3.2-1b"], framework="transformers"), f"{devices}xh100-80gb")
    assert goal.global_batch == batch
    assert grid_of(goal).meshes
