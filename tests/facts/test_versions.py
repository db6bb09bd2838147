"""Versions as training environments write them."""

from __future__ import annotations

import pytest

from trainledger.facts.versions import at_least, parse_version


@pytest.mark.parametrize(
    "text, version",
    [
        ("2.14.1+cu130", (2, 14, 1)),
        ("2.10.0a0 (nv26.01)", (2, 10, 0)),
        ("2.7.0a0", (2, 7, 0)),
        ("2.9.0.dev20250815+cu128", (2, 9, 0)),
        ("v4.48", (4, 48, 0)),
        ("1963fc8 (2024-12-23)", None),
        ("main@2026-08-19", None),
        ("9dec370", None),
    ],
)
def test_parse(text: str, version: tuple[int, ...] | None) -> None:
    assert parse_version(text) == version


def test_versions_are_compared_by_number_and_unknown_ones_are_newest() -> None:
    assert at_least("2.10.0", "2.8")
    assert not at_least("2.7.1", "2.8")
    assert at_least(None, "2.8")
    assert at_least("main@2026-08-19", "2.8")
