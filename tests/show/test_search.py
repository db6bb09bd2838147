"""A search as text and as data: what is printed is what was found."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.answer.search_goals import SMALL, small, template
from trainledger.answer.search import search
from trainledger.answer.search_answer import Answer, How, Progress
from trainledger.answer.search_goal import goal_of
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of, parse_document
from trainledger.show.search import document, plan_lines, progress_line, sections
from trainledger.show.table import plain


@cache
def answer() -> Answer:
    """A small search."""
    return search(small(), How(top=3, limit=8))


def test_the_text_has_the_plans_their_time_and_what_it_assumes() -> None:
    text = "\n\n".join(plain(one) for one in sections(answer()) if one.text or one.rows)
    first = answer().ranked[0]
    assert f"{first.step:.3f}" in text
    assert f"{answer().counts.candidates:,} legal plans" in text
    assert "estimate by a roofline" in text
    assert "matrix products reach 75%" in text
    assert "replay" in text


def test_nothing_that_fits_is_said_so() -> None:
    keys = {**SMALL, "num_hidden_layers": 200, "hidden_size": 8192}
    none = search(goal_of(template(keys, "transformers"), "1xrtx4090", 1, 8192), How(top=1, limit=4))
    text = "\n\n".join(plain(one) for one in sections(none) if one.text or one.rows)
    assert none.ranked == ()
    assert "No plan fits" in text
    with pytest.raises(IndexError):
        plan_lines(none)


def test_the_data_is_json_and_its_plans_are_plans() -> None:
    found = json.loads(json.dumps(document(answer())))
    assert [one["step"] for one in found["ranked"]] == [one.step for one in answer().ranked]
    for one in found["ranked"]:
        assert sum(one["parts"].values()) == pytest.approx(one["step"])
        assert draft_of(Document(one["plan"], {})).plan.parallel.world == 8


def test_the_first_plan_is_written_as_a_file_that_is_read_again() -> None:
    text = plan_lines(answer())
    plan = draft_of(parse_document(text, "plan.yaml")).plan
    first = answer().ranked[0].candidate
    assert (plan.parallel.tp, plan.parallel.pp, plan.batch.micro_batch) == (first.tp, first.pp, first.micro_batch)


def test_progress_is_one_line() -> None:
    assert "none fits yet" in progress_line(Progress(1000, 10, 0, None))
    assert "\n" not in progress_line(Progress(1000, 10, 4, answer().ranked[0]))
