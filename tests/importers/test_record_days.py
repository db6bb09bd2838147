"""Records that name no release of torchtitan or torchtune: their source's words tell it."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.importers.record_days import with_release

PLAN = {"model": {}, "stack": {"framework": "torchtitan", "compile": True}}


def release(source: dict[str, Any], **stack: Any) -> str | None:
    plan = {**PLAN, "stack": {**PLAN["stack"], **stack}}
    return with_release(plan, source)["stack"].get("versions", {}).get("torchtitan")


@pytest.mark.parametrize(
    "source, version",
    [
        ({"path": "commit message (2025-02-18), a file"}, "2025-02-18"),
        ({"path": "public text, torchtitan 1690e0ae + local config"}, "1690e0ae"),
        ({"path": "commit message", "note": "a run of 2025-06-04, torchtitan 1234567"}, "2025-06-04"),
        ({"repo": "pytorch/ao", "path": "torchao/prototype/float8nocompile/README.md"}, "2025-02-11"),
        ({"repo": "someone/else", "path": "torchao/prototype/float8nocompile/README.md"}, None),
        ({"path": None}, None),
    ],
)
def test_the_source_tells_a_commit_or_a_day(source: dict[str, Any], version: str | None) -> None:
    assert release(source) == version


def test_what_the_plan_names_stays() -> None:
    source = {"path": "commit message (2025-02-18)"}
    assert release(source, versions={"torchtitan": "0.2.0"}) == "0.2.0"
    assert release(source, framework="litgpt") is None
    assert release(source, versions={"torch": "2.7.0"}) == "2025-02-18"


def test_a_month_is_its_first_day() -> None:
    stack = {"stack": {"framework": "torchtune"}}
    found = with_release(stack, {"path": "README.md of commit 79ebbb023 (2024-05)"})
    assert found["stack"]["versions"] == {"torchtune": "2024-05-01"}
    assert release({"path": "a page of 2024-050 and 12024-05"}) is None


def test_a_plan_that_is_none_is_left_to_its_own_check() -> None:
    for broken in ({"stack": None}, {"stack": {"framework": "torchtitan", "versions": 5}}, {}):
        assert with_release(broken, {"path": "2025-02-18"}) == broken
