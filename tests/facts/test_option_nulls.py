"""Options that take null: each is an option, and what null stands for is of its kind."""

from __future__ import annotations

import pytest

from trainledger.base.sources import Source
from trainledger.facts.option_nulls import MEANT, NULLS, Null, null_means, null_taken
from trainledger.facts.options import Kind, find_option


def test_no_option_stands_twice() -> None:
    assert len(MEANT) == sum(len(row.names) for row in NULLS)


def test_a_value_is_of_its_options_kind() -> None:
    for (where, name), value in MEANT.items():
        row = find_option(where, name)
        assert value is None or (row is not None and row.kind is Kind.TEXT)


def test_only_options_have_rows() -> None:
    with pytest.raises(ValueError, match="no option"):
        Null("stack.options", ("no_such_option",), Source("a title", "a place"))


def test_what_null_stands_for() -> None:
    assert null_means("parallel.options", "backward_prefetch") == "NO_PREFETCH"
    assert null_taken("parallel.options", "offload_optimizer")
    assert not null_taken("parallel.options", "contiguous_gradients")
