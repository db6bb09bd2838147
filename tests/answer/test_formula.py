"""The arithmetic of one line, and which lines a word means."""

from __future__ import annotations

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.formula import explain, formula, matching
from trainledger.answer.tables import Entry
from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import InputError
from trainledger.base.sources import Basis, Source
from trainledger.base.units import MIB
from trainledger.facts.dtypes import BF16, NF4_TYPE, DType
from trainledger.lines.line import Account, Line


def entry(size: int, unit: int, dtype: DType = BF16) -> Entry:
    """Three copies of a line of that many elements, in blocks of that many bytes."""
    source = Source("a test", "here")
    line = Line(Account.WEIGHTS, "w", (Axis(Dim.ELEMENTS, size),), dtype, unit, Basis.COUNTED, source)
    return Entry(line, 3, 3 * unit, ("init",))


@pytest.fixture(scope="module")
def answer() -> Estimate:
    """A small model on one device."""
    return estimate(plan_of())


def test_a_granule() -> None:
    found = formula(entry(3, 512))
    assert (found.elements, found.bits, found.payload, found.added, found.block) == (3, 16, 6, 506, 512)
    assert found.block_why == "rounded up to a multiple of 512 B"


def test_a_multiple_of_a_granule() -> None:
    found = formula(entry(256, 512))
    assert (found.added, found.block_why) == (0, "a multiple of 512 B already")


def test_half_bytes_are_rounded_up_before() -> None:
    assert formula(entry(1025, 1024, NF4_TYPE)).payload == 513


def test_a_block_of_another_making_is_said_to_be_one() -> None:
    assert formula(entry(3, 2 * MIB)).block_why == "the block that its own allocation takes"


def test_an_account_wins_over_names_that_contain_it(answer: Estimate) -> None:
    lines = answer.ledger.lines
    assert {lines[number].account for number in matching(lines, "Optimizer States")} == {Account.OPTIMIZER}
    assert {lines[number].account for number in matching(lines, "weights")} == {Account.WEIGHTS}
    assert len({lines[number].account for number in matching(lines, "q_proj")}) > 1


@pytest.mark.parametrize("word", ["", "   ", "nothing like it"])
def test_a_word_that_means_nothing(answer: Estimate, word: str) -> None:
    with pytest.raises(InputError, match="an account"):
        matching(answer.ledger.lines, word)


def test_the_largest_line_stands_first(answer: Estimate) -> None:
    found = explain(answer, "weights")
    sizes = [one.entry.bytes for one in found.formulas]
    assert sizes == sorted(sizes, reverse=True)
    assert sum(sizes) == found.bytes
