"""Which changes a version of torchtitan has, by release and by commit."""

from __future__ import annotations

import pytest

from trainledger.facts.torchtitan import ROWS, Change, compiles_loss, holds
from trainledger.facts.torchtitan_commits import DIGITS, ERAS
from trainledger.facts.torchtitan_days import (
    NEWEST,
    NIGHTLIES,
    changed,
    dated,
    dated_torch,
    day_of,
    last_day,
    torch_at,
    torch_of,
    torchtitan_of,
)


def test_commits_are_told_by_their_first_digits_and_stand_in_one_era() -> None:
    commits = [digits for era in ERAS.values() for digits in era.split()]
    assert {len(digits) for digits in commits} == {DIGITS}
    assert len(set(commits)) == len(commits)
    assert list(ERAS) == sorted(ERAS)


def test_every_change_begins_and_ends_with_an_era() -> None:
    for row in ROWS.values():
        assert row.since in ERAS
        assert not row.until or row.until in ERAS


@pytest.mark.parametrize(
    "version, day",
    [
        ("5940ddeb532c", "2025-02-06"),
        ("5940ddeb", "2025-02-06"),
        ("v0.2.2", "2026-02-20"),
        ("9dec370", "2024-12-26"),
        ("2025-02-18", "2025-02-18"),
        ("0.2.0.dev20250815+cu128", "2025-08-15"),
        ("0.0", NEWEST),
        ("no such", NEWEST),
    ],
)
def test_the_day_of_a_version(version: str, day: str) -> None:
    assert day_of(version) == day


def test_a_change_may_be_taken_back() -> None:
    assert [holds(Change.SAVES_ABS, one) for one in ("e10cb9494", "2271b6386db6", "88247277c6b9")] == [
        False,
        True,
        False,
    ]
    assert [compiles_loss(one) for one in ("40f8fd007957", "e10cb9494", "2271b6386db6", "775a486")] == [
        False,
        True,
        False,
        True,
    ]


def test_the_release_of_pytorch_follows_from_the_day() -> None:
    assert torch_of("5940ddeb532c") == "2.7"
    assert torch_at("2024-12-15") == "2.6"
    assert dated_torch("1963fc8 (2024-12-23)") == "2.7"
    assert dated_torch("2.7.0a0") == ""


@pytest.mark.parametrize(
    "text, day",
    [
        ("commit message (2025-02-18), a file", "2025-02-18"),
        ("2.9.0.dev20250811+rocm6", "2025-08-11"),
        ("index id 62225276677", ""),
        ("120250-02-18", ""),
    ],
)
def test_a_text_names_a_day(text: str, day: str) -> None:
    assert dated(text) == day


def test_builds_of_the_main_branch_end_as_it_takes_the_next_number() -> None:
    assert (last_day("2.8.0a0"), last_day("2.9.0.dev20250811+rocm6")) == ("2025-06-30", "2025-09-08")
    assert (last_day("2.8.0"), last_day(f"{NIGHTLIES[0].release}.0a0")) == ("", "")
    assert dated_torch("2.9.0.dev20250811") == ""


def test_a_release_of_pytorch_means_the_torchtitan_of_its_time() -> None:
    assert torchtitan_of("2.6.0+cu124") == "2024-12-16"
    assert torchtitan_of("1.13") is None


@pytest.mark.parametrize(
    ("torch", "torchtitan", "there"),
    [
        ("2.8.0", "", True),
        ("2.7.1", "2026-01-01", False),
        ("", "", True),
        ("2.8", "2025-06-03", False),
        ("2.8", "2025-06-04", True),
        ("2.8.0.dev20250601+cu128", "2025-06-20", False),
        ("2.8.0.dev20250615+cu128", "2025-06-01", True),
    ],
)
def test_a_change_of_pytorch_by_release_by_night_or_by_the_day_of_torchtitan(
    torch: str, torchtitan: str, there: bool
) -> None:
    assert changed("2.8", "2025-06-04", torch, torchtitan) is there
