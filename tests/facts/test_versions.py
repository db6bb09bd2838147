"""Versions as training environments write them."""

from __future__ import annotations

import pytest

from trainledger.facts.versions import at_least, names_version, parse_version


@pytest.mark.parametrize(
    "text, version",
    [
        ("2.14.1+cu130", (2, 14, 1)),
        ("2.10.0a0 (nv26.01)", (2, 10, 0)),
        ("2.7.0a0", (2, 7, 0)),
        ("2.9.0.dev20250815+cu128", (2, 9, 0)),
        ("v4.48", (4, 48, 0)),
        ("4", (4, 0, 0)),
        ("8641822", None),
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


@pytest.mark.parametrize(
    "text",
    (
        "2.14.1+cu130|2.10.0a0 (nv26.01)|2.7.0a0|2.9.0.dev20250811+rocm6|2.8.0.dev20250507|0.19.2.dev0|2.7.0.post2|"
        "0.13.0+git4fc4068d6|2.9.0-rc1|v4.48|4|2.1.*|1963fc8 (2024-12-23)|9dec370|8641822|2c8b5947|23e00ed0963c|"
        "main|master|nightly|main@2026-07-25|core_r0.14.0|NeMo 25.07-25.09|2024-04|2025-06-30|d888c3787 (2024-07)|"
        "abcdef|ngc-pytorch-25.09"
    ).split("|"),
)
def test_what_names_a_version(text: str) -> None:
    assert names_version("megatron", text)


@pytest.mark.parametrize(
    "text", ["", "banana", "2.1O.0", "2.1banana", ">=2.1", "==2.1", "torch2.6", "torch-2.6", "2,10", "two"]
)
def test_what_names_none(text: str) -> None:
    assert not names_version("torch", text)
