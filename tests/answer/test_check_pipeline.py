"""What of a pipeline cannot be estimated: each by its key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.check import check
from trainledger.base.problems import InputError


def problems(schedule: str, **stack: Any) -> list[str]:
    """The paths of what is wrong with torchtitan's stages under a schedule."""
    given = {"framework": "torchtitan", "versions": {"torch": "2.14.1"}, **stack}
    parallel = {"strategy": "fsdp2", "dp": 2, "pp": 2, "vpp": 2 if schedule == "zb-v" else 1, "schedule": schedule}
    try:
        check(plan_of(stack=given, parallel=parallel, batch={"accumulation": 4}))
    except InputError as error:
        return [one.path for one in error.problems]
    return []


@pytest.mark.parametrize(
    ("stack", "path"),
    [
        ({"loss": "full-fp32"}, None),
        ({"loss": "chunked"}, "stack.loss"),
        ({"loss": "full-fp32", "recompute": "full"}, "stack.recompute.kind"),
        ({"loss": "full-fp32", "compile": True}, "stack.compile"),
    ],
)
def test_a_backward_in_two_passes_has_no_rule_for_all_that_one_has(stack: dict[str, Any], path: str | None) -> None:
    assert problems("zb-v", **stack) == ([path] if path else [])
    assert problems("1f1b", **stack) == []
