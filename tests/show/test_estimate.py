"""The verdict's line: whose margin it is."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.show.estimate import View, verdict_section


@pytest.mark.parametrize(
    ("sections", "end"),
    [({}, "GiB"), ({"save": {"disk": "1MB"}}, "of the device's memory, but not elsewhere")],
)
def test_a_margin_beside_another_place_that_fails_says_that_it_is_the_device_s(
    sections: dict[str, Any], end: str
) -> None:
    title = verdict_section(estimate(plan_of(**sections)).verdict, View("GiB")).title
    assert ": margin " in title
    assert title.endswith(end)
