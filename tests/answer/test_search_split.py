"""The solver's splits are the best there are: against every split of small problems, one by one."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise, product

import pytest

from trainledger.answer.search_split import Choice, Problem, Solution, cost, solve


def brute(problem: Problem) -> Solution | None:
    """The best of all splits, one by one: for few layers and stages."""
    best: Solution | None = None
    for counts in splits(problem.layers, len(problem.flight)):
        for choice, way in enumerate(problem.choices):
            for first in range(sum(problem.layers) + 1) if way.again else (0,):
                seconds, fits = cost(problem, counts, choice, first)
                if fits and (best is None or seconds < best.seconds):
                    best = Solution(counts, choice, first, seconds)
    return best


def splits(layers: Sequence[int], stages: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Every split of layers in their order over stages, of which only those at the ends may have none."""
    kinds = [kind for kind, count in enumerate(layers) for _ in range(count)]
    for cuts in product(range(len(kinds) + 1), repeat=stages - 1):
        bounds = (0, *cuts, len(kinds))
        pairs = list(pairwise(bounds))
        if any(start > end for start, end in pairs) or any(start == end for start, end in pairs[1:-1]):
            continue
        yield tuple(tuple(kinds[start:end].count(kind) for kind in range(len(layers))) for start, end in pairs)


def drawn(seed: int) -> Problem:
    """A small problem: one or two kinds of layers, two to four stages, three ways to keep activations."""
    draw = random.Random(seed)
    stages, kinds = draw.randint(2, 4), draw.choice((1, 2))
    layers = tuple(draw.randint(2 if kind else stages - 1, 4) for kind in range(kinds))

    def each(least: float, most: float) -> tuple[float, ...]:
        return tuple(draw.uniform(least, most) for _ in layers)

    kept, seconds = each(1, 3), each(1, 2)
    less, longer = tuple(one / 10 for one in kept), tuple(one * 4 / 3 for one in seconds)
    ways = (Choice("none", kept, seconds), Choice("full", less, longer), Choice("block", kept, seconds, less, longer))
    fixed = tuple(draw.uniform(0, 2) for _ in range(stages))
    flight = tuple(stages - at for at in range(stages))
    return Problem(layers, each(2, 4), flight, fixed, (*(0.0,) * (stages - 1), 1.0), draw.uniform(8, 40), ways)


@pytest.mark.parametrize("seed", range(24))
def test_the_solver_finds_what_trying_all_finds(seed: int) -> None:
    pytest.importorskip("highspy")
    problem = drawn(seed)
    best, found = brute(problem), solve(problem)
    if best is None:
        assert found is None
        return
    assert found is not None
    assert found.seconds == pytest.approx(best.seconds)
    assert cost(problem, found.counts, found.choice, found.first) == (pytest.approx(found.seconds), True)


def test_the_drawn_problems_are_of_both_kinds() -> None:
    found = [brute(drawn(seed)) for seed in range(24)]
    assert any(one is None for one in found)
    assert len({one.choice for one in found if one is not None}) > 1


def test_recompute_and_an_uneven_split_are_chosen_where_memory_asks_for_them() -> None:
    kept, less = (10.0,), (1.0,)
    ways = (Choice("none", kept, (3.0,)), Choice("block", kept, (3.0,), less, (4.0,)))
    problem = Problem((4,), (1.0,), (2, 1), (0.0, 0.0), (0.0, 0.0), 100.0, ways)
    roomy = brute(problem)
    assert roomy is not None
    assert (roomy.layers, roomy.choice, roomy.seconds) == ((2, 2), 0, 6.0)
    tight = brute(Problem((4,), (1.0,), (2, 1), (0.0, 0.0), (0.0, 0.0), 33.0, ways))
    assert tight is not None
    assert (tight.layers, tight.seconds) == ((2, 2), 7.0)  # one layer of each stage runs again
    assert tight.first == 1


def test_nothing_is_said_on_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("highspy")
    solve(drawn(0))
    assert capfd.readouterr() == ("", "")
