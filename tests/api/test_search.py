"""`trainledger.search`: plans in, a frozen result out that prints, serialises and shows itself."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from functools import cache

import pytest

import trainledger
from tests.answer.search_goals import SMALL, template


@cache
def result() -> trainledger.SearchResult:
    """A small search."""
    given = template(SMALL, "transformers")
    return trainledger.search(given, "8xrtx4090", global_batch=64, sequence=4096, top=2)


def test_a_result_shows_itself() -> None:
    found = result()
    assert "Fastest plans that fit" in str(found)
    assert found._repr_html_().startswith('<div class="trainledger">')
    assert repr(found).startswith("<SearchResult: ")
    assert found.to_dict()["goal"]["devices"] == 8
    with pytest.raises(FrozenInstanceError):
        found.answer = None  # type: ignore[misc, assignment]


def test_its_plans_can_be_estimated() -> None:
    best = trainledger.estimate(result().plans[0])
    assert best.answer.verdict.outcome == "fits"
    assert best.answer.global_batch == 64


def test_an_unknown_argument_is_named() -> None:
    with pytest.raises(TypeError, match="depth"):
        trainledger.search(template(SMALL), "8xrtx4090", depth=2)
