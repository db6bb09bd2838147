"""Rows of the free maps, and of defaults."""

from __future__ import annotations

import pytest

from trainledger.base.sources import Source
from trainledger.facts.allocator_settings import ALLOCATOR_TEXTS, SETTINGS, Moves
from trainledger.facts.import_megatron import ROWS as ARGUMENTS
from trainledger.facts.import_rows import Means
from trainledger.facts.option_row import Direction, Effect, Kind, Row
from trainledger.facts.options import MEGATRON_ROWS, OPTION_MAPS, ROWS, find_option, option_names
from trainledger.facts.options_parallel import PARALLEL_ROWS
from trainledger.facts.options_stack import STACK_ROWS
from trainledger.facts.options_training import TRAINING_ROWS


def test_no_name_stands_twice() -> None:
    assert len(ROWS) == len((*PARALLEL_ROWS, *STACK_ROWS, *TRAINING_ROWS, *MEGATRON_ROWS))
    assert {where for where, _ in ROWS} == set(OPTION_MAPS)


def test_a_name_is_found_where_it_belongs() -> None:
    row = find_option("stack.env", "CUBLAS_WORKSPACE_CONFIG")
    assert row is not None
    assert row.effect is Effect.COUNTED
    assert find_option("stack.options", "CUBLAS_WORKSPACE_CONFIG") is None
    assert "data_types.grad_accum_dtype" in option_names("parallel.options")


def test_what_an_argument_of_megatrons_does_a_plan_can_say_too() -> None:
    """An argument that the importer lists as not counted is no unknown name in a plan."""
    for row in (one for one in ARGUMENTS if one.means is Means.UNCOUNTED):
        name = row.name.removeprefix("--").replace("-", "_")
        found = [one for where in ("parallel.options", "stack.options") if (one := find_option(where, name))]
        assert found, name
        assert all(one.effect is not Effect.NONE for one in found), name


def test_a_direction_goes_with_not_counted_alone() -> None:
    source = Source("a title", "a place")
    with pytest.raises(ValueError, match="direction"):
        Row("x", "stack.env", Kind.TEXT, Effect.NOT_COUNTED, Direction.NONE, source)
    with pytest.raises(ValueError, match="direction"):
        Row("x", "stack.env", Kind.TEXT, Effect.COUNTED, Direction.LOW, source)


def test_every_setting_of_the_allocator_is_an_option() -> None:
    rows = {name: find_option("stack.allocator", name) for name in SETTINGS}
    assert set(option_names("stack.allocator")) == set(SETTINGS)
    for name, setting in SETTINGS.items():
        row = rows[name]
        assert row is not None
        assert (row.effect is Effect.COUNTED) == (setting.moves in (Moves.DEVICE, Moves.PINNED))
        assert row.source == setting.source
    for text in ALLOCATOR_TEXTS:
        found = find_option("stack.env", text)
        assert found is not None
        assert found.effect is Effect.COUNTED
