"""Degrees that cannot be, told together though they do not multiply to the world."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_mega_moe import EXPERTS
from tests.ledger.test_megatron import LLAMA
from trainledger.base.problems import InputError
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of

BATCH = {"micro_batch": 1, "sequence": 4096, "accumulation": 8}


def refused(parallel: dict[str, Any], **model: Any) -> dict[str, str]:
    data = {
        "model": {**LLAMA, **EXPERTS, **model},
        "batch": BATCH,
        "parallel": {"strategy": "megatron-distopt", "sp": True, **parallel},
        "stack": {"framework": "megatron"},
    }
    with pytest.raises(InputError) as found:
        draft_of(Document(data, {("parallel", "tp"): "plan.yaml:7"}))
    return {one.path: f"{one.where} {one.found} {one.fix}" for one in found.value.problems}


def test_heads_experts_and_layers_are_told_with_the_world() -> None:
    found = refused({"world": 100, "tp": 3, "pp": 3, "ep": 3})
    assert set(found) == {
        "parallel.world",
        "parallel.tp",
        "parallel.ep",
        "parallel.pp",
        "model.vocab_size",
        "batch.sequence",
    }
    assert found["parallel.tp"].startswith("plan.yaml:7 3 ")
    assert found["parallel.world"].endswith("The nearest that can is 99.")
    assert all("nearest that can" in one for one in found.values())


def test_what_follows_from_the_world_is_not_told_twice() -> None:
    options = {"num_distributed_optimizer_instances": 4}
    assert set(refused({"world": 9, "tp": 2, "options": options})) == {"parallel.world"}


def test_other_problems_come_first() -> None:
    assert set(refused({"world": 9, "tp": 2, "cp": 3, "vpp": 2})) == {"parallel.world", "parallel.vpp"}
