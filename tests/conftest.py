"""What all tests share: property tests that give the same answer on every machine."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings


def pytest_addoption(parser: pytest.Parser) -> None:
    """Golden files are written anew when asked."""
    parser.addoption("--update-golden", action="store_true", help="write tests/**/golden anew")


settings.register_profile(
    "repeatable",
    deadline=None,  # a busy machine is no failure
    derandomize=True,
    max_examples=60,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("repeatable")
