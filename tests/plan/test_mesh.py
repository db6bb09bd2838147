"""The mesh: how each framework nests its axes, where a rank lies, and classes of equal ranks."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.plan.mesh import Mesh, coordinates, expert_tensor_degree, mesh_of, ranks_of, roles
from trainledger.plan.read import read_plan
from trainledger.plan.runs import Run
from trainledger.plan.schema import Plan

# Groups of Megatron-Core 0.19.2's RankGenerator, tp 2, cp 2, dp 2, pp 2 and experts over etp 1, ep 4, edp 2.
MEGATRON = {
    "tp": [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11], [12, 13], [14, 15]],
    "cp": [[0, 2], [1, 3], [4, 6], [5, 7], [8, 10], [9, 11], [12, 14], [13, 15]],
    "dp": [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]],
    "pp": [[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]],
    "ep": [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]],
    "edp": [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]],
}
MEGATRON_PP_FIRST = {
    "tp": MEGATRON["tp"],
    "cp": MEGATRON["cp"],
    "dp": [[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]],
    "pp": [[0, 4], [1, 5], [2, 6], [3, 7], [8, 12], [9, 13], [10, 14], [11, 15]],
    "ep": MEGATRON["ep"],
    "edp": [[0, 8], [1, 9], [2, 10], [3, 11], [4, 12], [5, 13], [6, 14], [7, 15]],
}


def plan_of(framework: str = "megatron", **parallel: Any) -> Plan:
    return read_plan(
        {
            "model": {"model_type": "llama"}, "batch": {"micro_batch": 1, "sequence": 8}, "parallel": parallel,
            "stack": {"framework": framework},
        }
    )  # fmt: skip


def groups(mesh: Mesh, axis: str) -> list[list[int]]:
    """The ranks along one axis, for every place on the others."""
    axes = mesh.dense if axis in dict(mesh.dense) else mesh.experts
    fixed = [(name, size) for name, size in axes if name != axis]
    places = product(*(range(size) for _, size in fixed))
    named = (dict(zip((name for name, _ in fixed), place, strict=True)) for place in places)
    return sorted(sorted(rank for run in ranks_of(mesh, **where) for rank in run) for where in named)


@pytest.mark.parametrize(("pp_first", "expected"), [(False, MEGATRON), (True, MEGATRON_PP_FIRST)])
def test_megatrons_groups(pp_first: bool, expected: dict[str, list[list[int]]]) -> None:
    mesh = mesh_of(plan_of(tp=2, cp=2, dp=2, pp=2, ep=4, etp=1, options={"use_tp_pp_dp_mapping": pp_first}))
    assert {axis: groups(mesh, axis) for axis in expected} == expected


def test_torchtitans_device_meshes() -> None:
    mesh = mesh_of(plan_of("torchtitan", strategy="hsdp", dp=4, shard=2, tp=2, pp=2, ep=4))
    dense = np.arange(16).reshape(2, 2, 2, 1, 2)  # pp, dp_replicate, dp_shard, cp, tp
    sparse = np.arange(16).reshape(2, 2, 1, 4)  # pp, dp_replicate, efsdp, ep
    for axis, at in (("pp", 0), ("dp_replicate", 1), ("dp_shard", 2), ("tp", 4)):
        assert groups(mesh, axis) == sorted(np.moveaxis(dense, at, -1).reshape(-1, dense.shape[at]).tolist())
    assert groups(mesh, "ep") == sparse.reshape(-1, 4).tolist()
    assert mesh.size("edp") == 1
    assert mesh.world == 16


def test_torchtitan_shards_over_context_parallel_ranks_too() -> None:
    whole = mesh_of(plan_of("torchtitan", strategy="fsdp2", world=512, dp=4, tp=8, cp=2, pp=8, shard=8))
    assert dict(whole.dense) == {"tp": 8, "cp": 2, "dp_shard": 4, "dp_replicate": 1, "pp": 8}
    copies = mesh_of(plan_of("torchtitan", strategy="hsdp", dp=4, cp=2, shard=4))
    assert dict(copies.dense) == {"tp": 1, "cp": 2, "dp_shard": 2, "dp_replicate": 2, "pp": 1}


@pytest.mark.parametrize(
    ("framework", "parallel", "degree"),
    [
        ("megatron", {"tp": 2, "dp": 4, "ep": 4}, 2),
        ("megatron", {"tp": 2, "dp": 4, "ep": 4, "etp": 1}, 1),
        ("torchtitan", {"tp": 2, "dp": 4, "ep": 4}, 1),
        ("torchtitan", {"tp": 2, "dp": 4}, 2),
        ("torchtitan", {"tp": 2, "dp": 4, "ep": 4, "etp": 2}, 2),
    ],
)
def test_experts_tensor_degree(framework: str, parallel: dict[str, int], degree: int) -> None:
    plan = plan_of(framework, **parallel)
    assert expert_tensor_degree(plan) == degree
    assert mesh_of(plan).size("etp") == degree
    assert mesh_of(plan).size("edp") == 8 // (degree * plan.parallel.ep)


degrees = st.sampled_from([1, 2, 3, 4])


@given(degrees, degrees, degrees, degrees, st.booleans(), st.data())
def test_ranks_of_finds_those_whose_coordinates_these_are(
    tp: int, cp: int, dp: int, pp: int, pp_first: bool, data: st.DataObject
) -> None:
    mesh = mesh_of(plan_of(tp=tp, cp=cp, dp=dp, pp=pp, ep=dp, options={"use_tp_pp_dp_mapping": pp_first}))
    names = data.draw(st.lists(st.sampled_from(["tp", "cp", "dp", "pp", "ep", "edp"]), unique=True, max_size=5))
    where = {name: data.draw(st.integers(0, mesh.size(name) - 1)) for name in names}
    found = [rank for run in ranks_of(mesh, **where) for rank in run]
    places = {rank: coordinates(mesh, rank) for rank in range(mesh.world)}
    assert sorted(found) == [rank for rank, at in places.items() if all(at[name] == where[name] for name in names)]


def test_every_stage_is_a_role() -> None:
    found = roles(mesh_of(plan_of(tp=2, dp=4, pp=3)))
    assert [(role.stage, role.first, role.count, role.ranks) for role in found] == [
        (0, 0, 8, (Run(0, 7),)), (1, 8, 8, (Run(8, 15),)), (2, 16, 8, (Run(16, 23),)),
    ]  # fmt: skip
    (alone,) = roles(mesh_of(plan_of()))
    assert (alone.stage, alone.ranks) == (0, (Run(0, 0),))


def test_a_class_function_tells_ranks_of_a_stage_apart() -> None:
    mesh = mesh_of(plan_of(tp=2, dp=4, pp=2))
    found = roles(mesh, lambda at: min(at["dp"], 1), ("dp",))
    assert [(role.stage, role.key, role.ranks) for role in found] == [
        (0, 0, (Run(0, 1),)), (0, 1, (Run(2, 7),)), (1, 0, (Run(8, 9),)), (1, 1, (Run(10, 15),)),
    ]  # fmt: skip


@pytest.mark.parametrize("pp_first", [False, True])
def test_roles_of_a_hundred_thousand_ranks_are_few_runs(pp_first: bool) -> None:
    mesh = mesh_of(plan_of(tp=8, dp=1000, pp=16, ep=8, options={"use_tp_pp_dp_mapping": pp_first}))
    calls = []
    found = roles(mesh, lambda at: calls.append(dict(at)))
    assert len(calls) == len(found) == 16
    assert sum(role.count for role in found) == 128_000
    assert all(len(role.ranks) <= 8 for role in found)


def test_places_that_there_are_not() -> None:
    mesh = mesh_of(plan_of(tp=2, dp=2))
    with pytest.raises(IndexError, match="rank 4 of a world of 4"):
        coordinates(mesh, 4)
    with pytest.raises(IndexError, match="tp 2 of 2"):
        ranks_of(mesh, tp=2)
    with pytest.raises(KeyError):
        ranks_of(mesh, sp=0)
