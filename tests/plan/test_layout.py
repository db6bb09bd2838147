"""Megatron-Core's layout text: letters of every stage, their positions, and the rules that they keep."""

from __future__ import annotations

import pytest

from trainledger.base.problems import InputError
from trainledger.plan.layout import layout_problems, read_layout


def letters(text: str) -> list[str]:
    return ["".join(letter for letter, _ in stage) for stage in read_layout(text)]


@pytest.mark.parametrize(
    ("text", "stages"),
    [
        ("Ettt|(tt|)*29,m|L", ["Ettt", *["tt"] * 29, "m", "L"]),  # the examples of its own comments
        ("Et*3|(tt|)*6mL", ["Ettt", *["tt"] * 6, "mL"]),
        ("E(ab|cd|ef)*2".replace("ab", "tt").replace("cd", "t").replace("ef", "m"), ["Ett", "t", "mtt", "t", "m"]),
        ("E|*3L", ["E", "", "", "L"]),
        ("E,t,|,L", ["Et", "L"]),
        ("E(t*2|)*2L", ["Ett", "tt", "L"]),
        ("Et*0|L", ["E", "L"]),
    ],
)
def test_factors_repeat_a_group_or_a_letter(text: str, stages: list[str]) -> None:
    assert letters(text) == stages


def test_letters_keep_their_positions() -> None:
    assert read_layout("E,t*2|(t|)*2L") == (
        (("E", 1), ("t", 3), ("t", 3)), (("t", 8),), (("t", 8),), (("L", 13),),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Ex|L", 'position 2: "x"; E, t, m, L and | are known'),
        ("et|L", "Did you mean E?"),
        ("E((t|)*2)*3L", "A factor follows one letter or one group that holds no other"),
        ("E(tt|L", 'position 2: "("'),
        ("Et *3L", 'position 3: " "'),
        ("Et*99999999999|L", "at most 1,048,576 entries"),
    ],
)
def test_what_has_no_meaning_is_refused_where_it_stands(text: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        read_layout(text)
    assert message in str(raised.value)


def test_every_wrong_character_is_named_once() -> None:
    with pytest.raises(InputError) as raised:
        read_layout("Ex*3|yL")
    assert [problem.found for problem in raised.value.problems] == ['position 2: "x"', 'position 6: "y"']


@pytest.mark.parametrize(
    ("text", "ranks", "layers", "mtp", "found"),
    [
        ("Et|t|L", 2, 2, 0, ["3 stages"]),
        ("tE|tL", 2, 2, 0, ["position 1: 't'"]),
        ("Et|Lt", 2, 2, 0, ["position 5: 't'"]),
        ("Et|EtL", 2, 2, 0, ["2 x E at positions 1, 4"]),
        ("Et|t", 2, 2, 0, ["0 x L"]),
        ("Et|tL", 2, 3, 1, ["2 x t", "0 x m"]),
        ("Etm|tL", 1, 2, 1, ["position 5: a layer after MTP", "position 3: MTP in stage 1 of 2"]),
        ("Et|tm|t|tL", 2, 4, 1, ["position 7: a layer after MTP", "position 5: MTP in stage 2 of 4"]),
        ("Et|t|m|mL", 2, 2, 2, ["MTP layers in 2 stages"]),
        ("Et|t|m|L", 2, 2, 1, []),
        ("Et*3|(tt|)*6mL", 2, 15, 1, []),
    ],
)
def test_the_rules_of_a_layout(text: str, ranks: int, layers: int, mtp: int, found: list[str]) -> None:
    assert [problem.found for problem in layout_problems(read_layout(text), ranks, layers, mtp)] == found
