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


@pytest.mark.parametrize(
    ("framework", "strategy", "option", "value"),
    [
        ("torchtitan", "fsdp2", "pipeline_model_parallel_layout", "Ett|ttL"),
        ("torchtitan", "fsdp2", "decoder_first_pipeline_num_layers", 1),
        ("pithtrain", "fsdp2", "account_for_loss_in_pipeline_split", True),
        ("megatron", "megatron-distopt", "pipeline_parallel_split_points", ["layers.1"]),
        ("megatron", "megatron-distopt", "pipeline_parallel_first_stage_less_layers", 2),
    ],
)
def test_stages_cut_by_another_frameworks_option_are_refused(
    framework: str, strategy: str, option: str, value: object
) -> None:
    parallel = {"strategy": strategy, "dp": 2, "pp": 2, "options": {option: value}}
    with pytest.raises(InputError) as raised:
        check(plan_of(stack={"framework": framework}, parallel=parallel, batch={"accumulation": 4}))
    assert [one.path for one in raised.value.problems].count(f"parallel.options.{option}") == 1
