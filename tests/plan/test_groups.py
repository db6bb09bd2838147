"""Communicators of a rank, and the peers that it sends to directly."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.plan.groups import groups_of, peers_of


def megatron(experts: int = 0, **parallel: Any) -> Any:
    model = {**LLAMA, "model_type": "megatron-gpt", "num_attention_heads": 8, "num_key_value_heads": 8}
    model |= {"num_experts": experts, "num_experts_per_tok": 2, "moe_intermediate_size": 256} if experts else {}
    given = {"strategy": "megatron-distopt", **parallel}
    return plan_of(model, parallel=given, stack={"framework": "megatron", "loss": "vocab-parallel"})


@pytest.mark.parametrize(
    ("parallel", "within", "across"),
    [
        ({"dp": 8}, 0, 0),
        ({"dp": 1, "cp": 8, "options": {"cp_comm_type": "a2a"}}, 7, 0),
        ({"dp": 1, "cp": 8, "options": {"cp_comm_type": "p2p"}}, 2, 0),
        ({"dp": 1, "cp": 2, "options": {"cp_comm_type": "p2p"}}, 1, 0),
        ({"dp": 1, "cp": 8, "options": {"cp_comm_type": "all_gather"}}, 0, 0),
        (
            {"dp": 1, "cp": 8, "options": {"cp_comm_type": "a2a+p2p", "hierarchical_context_parallel_sizes": [4, 2]}},
            4,
            0,
        ),
        ({"dp": 1, "cp": 8, "tp": 2, "options": {"cp_comm_type": "a2a"}}, 0, 7),
        ({"dp": 1, "pp": 2}, 1, 0),
        ({"dp": 1, "pp": 8}, 1, 0),
        ({"dp": 1, "pp": 4, "vpp": 2}, 2, 0),
        ({"dp": 4, "pp": 4}, 0, 1),
    ],
)
def test_peers(parallel: dict[str, Any], within: int, across: int) -> None:
    assert peers_of(megatron(**parallel)) == (within, across)


@pytest.mark.parametrize(("dispatcher", "within"), [("alltoall", 3), ("allgather", 0), ("flex", 0)])
def test_experts_exchange_tokens_with_all_ranks_of_their_group(dispatcher: str, within: int) -> None:
    options = {"moe_token_dispatcher_type": dispatcher}
    assert peers_of(megatron(8, dp=4, ep=4, options=options)) == (within, 0)


@pytest.mark.parametrize(
    ("experts", "parallel", "norms"),
    [
        (0, {"dp": 8}, ("distributed optimizer instance",)),
        (0, {"dp": 8, "options": {"num_distributed_optimizer_instances": 8}}, ()),
        (0, {"strategy": "megatron-ddp", "dp": 8}, ()),
        (0, {"strategy": "megatron-ddp", "dp": 4, "tp": 2}, ("model parallel",)),
        (0, {"strategy": "megatron-ddp", "dp": 4, "pp": 2}, ("model parallel",)),
        (8, {"strategy": "megatron-ddp", "dp": 8, "ep": 8}, ("expert model parallel",)),
        (8, {"dp": 8, "ep": 8}, ("distributed optimizer instance",)),
    ],
)
def test_norms_of_gradients_have_groups_of_their_own(
    experts: int, parallel: dict[str, Any], norms: tuple[str, ...]
) -> None:
    found = groups_of(megatron(experts, **parallel))
    assert tuple(name for name in found if "instance" in name or "model parallel" in name) == norms


def test_ranks_that_share_a_sequence_have_communicators_of_their_own() -> None:
    stack = {"framework": "deepspeed", "versions": {}, "attention": "flash"}
    parallel = {"strategy": "zero3", "dp": 1, "cp": 16, "shard": 16, "options": {"cp_comm_type": "ulysses"}}
    plan = plan_of({**LLAMA, "num_attention_heads": 16}, parallel=parallel, stack=stack)
    assert groups_of(plan) == ("all ranks", "sequence parallel", "sequence data parallel")
    assert peers_of(plan) == (0, 15)


def test_deepspeed_reduces_in_a_clone_of_all_ranks() -> None:
    stack = {"framework": "deepspeed", "versions": {}, "attention": "flash"}
    assert groups_of(plan_of(parallel={"strategy": "zero2", "dp": 4}, stack=stack)) == ("all ranks", "clone of all")
    assert groups_of(plan_of(parallel={"strategy": "fsdp2", "dp": 4})) == ("all ranks",)
    assert groups_of(plan_of()) == ()


TITAN = {"framework": "torchtitan", "versions": {}, "attention": "flash"}


@pytest.mark.parametrize(
    ("parallel", "stack", "expected"),
    [
        ({"strategy": "fsdp2", "dp": 8}, TITAN, ()),
        ({"strategy": "fsdp2", "dp": 4, "tp": 2}, TITAN, ("tensor parallel", "data parallel", "loss")),
        (
            {"strategy": "hsdp", "dp": 4, "shard": 2, "pp": 2},
            TITAN,
            ("data parallel", "replicated", "pipeline parallel", "loss"),
        ),
        ({"strategy": "fsdp2", "dp": 2, "cp": 4}, TITAN, ("context parallel",)),
        ({"strategy": "hsdp", "dp": 8, "shard": 4}, {"versions": {}}, ("data parallel", "replicated")),
        ({"strategy": "ddp", "dp": 8}, {"versions": {}}, ()),
    ],
)
def test_every_axis_of_a_device_mesh_has_a_communicator_of_its_own(
    parallel: dict[str, Any], stack: dict[str, Any], expected: tuple[str, ...]
) -> None:
    assert groups_of(plan_of(parallel=parallel, stack=stack)) == ("all ranks", *expected)


def test_experts_of_a_device_mesh_have_two_groups_more() -> None:
    model = {
        **LLAMA,
        "model_type": "qwen3_moe",
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 64,
    }
    plan = plan_of(model, parallel={"strategy": "fsdp2", "dp": 8, "ep": 4}, stack=TITAN)
    assert groups_of(plan) == ("all ranks", "expert parallel", "expert sharded")
