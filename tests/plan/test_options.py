"""Options that are null: read as their framework reads null, or refused with what to do."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from trainledger.base.problems import InputError
from trainledger.plan.read import read_plan
from trainledger.plan.schema import json_schema
from trainledger.plan.text import LEAVE_OUT

MINIMAL: dict[str, Any] = {"model": {"model_type": "llama"}, "batch": {"micro_batch": 1, "sequence": 8}}


def read(**sections: Any) -> Any:
    jsonschema.Draft202012Validator(json_schema()).validate({**MINIMAL, **sections})
    return read_plan({**MINIMAL, **sections})


def test_null_is_the_key_left_out_where_the_frameworks_default_is_null() -> None:
    options = {
        "moe_expert_capacity_factor": None,
        "moe_router_dtype": None,
        "overlap_comm": None,
        "offload_optimizer": None,
        "offload_param": {"device": "cpu", "nvme_path": None},
    }
    plan = read(parallel={"options": options}, adapter={"kind": "lora", "options": {"target_parameters": None}})
    assert plan.parallel.options == {"offload_param": {"device": "cpu"}}
    assert plan.adapter.options == {}


def test_null_turns_off_what_is_on_by_default() -> None:
    """FSDP's own default is BACKWARD_PRE; None there gathers nothing ahead."""
    plan = read(parallel={"options": {"backward_prefetch": None, "forward_prefetch": None}})
    assert plan.parallel.options == {"backward_prefetch": "NO_PREFETCH"}


@pytest.mark.parametrize(
    ("section", "path", "fix"),
    [
        ({"parallel": {"options": {"zero_init": None}}}, "parallel.options.zero_init", LEAVE_OUT),
        ({"stack": {"env": {"NCCL_ALGO": None}}}, "stack.env.NCCL_ALGO", LEAVE_OUT),
        ({"stack": {"allocator": {"max_split_size_mb": None}}}, "stack.allocator.max_split_size_mb", LEAVE_OUT),
        ({"parallel": {"tp": None}}, "parallel.tp", LEAVE_OUT),
        ({"adapter": {"kind": None}}, "adapter.kind", "Give it a value."),
    ],
)
def test_null_that_says_nothing_is_refused_with_what_to_do(section: dict[str, Any], path: str, fix: str) -> None:
    with pytest.raises(InputError) as caught:
        read_plan({**MINIMAL, **section})
    assert [(one.path, one.found, one.fix) for one in caught.value.problems] == [(path, "null", fix)]
