"""What plans with experts are refused for under Megatron-Core, by key."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_mla import LATENT
from tests.ledger.test_mega_moe import routed
from trainledger.answer.check import check
from trainledger.base.problems import InputError


@pytest.mark.parametrize(
    ("key", "sections"),
    [
        ("model.num_nextn_predict_layers", {"model": {"num_nextn_predict_layers": 1}}),
        ("model.kv_lora_rank", {"model": LATENT}),
        ("parallel.options.moe_token_dispatcher_type", {"options": {"moe_token_dispatcher_type": "flex"}}),
        ("parallel.options.moe_shared_expert_overlap", {"options": {"moe_shared_expert_overlap": True}}),
        ("parallel.ep", {"parallel": {"dp": 3, "ep": 3}}),
        ("parallel.sp", {"parallel": {"tp": 2}}),
        ("stack.recompute.modules", {"stack": {"recompute": {"kind": "selective", "modules": ["layernorm"]}}}),
    ],
)
def test_refused_by_name(key: str, sections: dict[str, Any]) -> None:
    with pytest.raises(InputError) as found:
        check(routed(**sections))
    assert key in [one.path for one in found.value.problems]


def test_what_is_known_passes() -> None:
    check(routed(parallel={"ep": 4, "tp": 2, "sp": True}))
