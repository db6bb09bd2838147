"""The communicators that a rank opens: one for each kind of group of more than one rank in which it takes part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from trainledger.facts.default_words import SHARDING
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.facts.meshes import CP, DP, EDP, EP, ETP, HEAD_EXCHANGE, NODE, PP, REPLICATE, SHARD, TP
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.mesh import Mesh, mesh_of
from trainledger.plan.schema import Plan
from trainledger.plan.stages import chunks_of

ENDS = ("first", "last")  # stages with one neighbour; ranks round a ring have one on each side
GATHERED = ("allgather", "flex")  # dispatchers that gather tokens, or bring buffers of their own


def groups_of(plan: Plan) -> tuple[str, ...]:
    """Names of the groups whose communicators a rank of the plan opens (those of one rank have none).

    Source: megatron/core/parallel_state.py, optimizer/__init__.py, _get_megatron_optimizer_based_on_param_groups (0.14
    to 0.19); deepspeed/utils/groups.py, _clone_world_group, and runtime/zero/stage3.py, barriers of all ranks (0.9.5 to
    0.19.8); torchtitan/distributed/parallel_dims.py and utils.py, set_pg_timeouts, a barrier of all ranks (0.1 to
    2026-08); torch/distributed/device_mesh.py, which takes the group of all ranks for a mesh of one axis. NCCL opens a
    communicator at its group's first collective.
    """
    if degrees(plan).world == 1:
        return ()
    if plan.stack.framework in FRAMEWORKS:
        return ("all ranks", *_megatron(plan))
    if not deepspeed_of(plan):
        return ("all ranks", *_meshed(plan))
    return (
        "all ranks",
        *(("sequence parallel", "sequence data parallel") if plan.parallel.cp > 1 else ("clone of all",)),
    )


def _megatron(plan: Plan) -> Iterator[str]:
    mesh, keys = mesh_of(plan), plan.keys()
    size = {name: mesh.size(name) for name in (TP, CP, DP, PP)}
    named = {
        "tensor parallel": size[TP],
        "context parallel": size[CP],
        "data parallel": size[DP] * size[CP],
        "pipeline parallel": size[PP],
        **_norms(plan, mesh),
        "embedding": size[PP] if keys.get("tie_word_embeddings", True) else 1,  # the first and the last stage
    }
    if keys.get("num_experts"):
        inner = {name: mesh.size(name) for name in (EP, ETP, EDP)}
        named |= {
            "expert parallel": inner[EP],
            "expert tensor parallel": inner[ETP],
            "expert tensor and model parallel": inner[EP] * inner[ETP] if inner[EP] > 1 and inner[ETP] > 1 else 1,
            "expert data parallel": inner[EDP],
        }
    for name, ranks in named.items():
        if ranks > 1:
            yield name


def _meshed(plan: Plan) -> Iterator[str]:
    """Groups of PyTorch's device meshes, those of all ranks left out: one for each axis; torchtitan sums its loss
    up over all ranks that have data of their own."""
    mesh = mesh_of(plan)
    size = {TP: 1, CP: 1, PP: 1, DP: 1, SHARD: 1, REPLICATE: 1} | dict(mesh.dense)
    sharded = size[SHARD] * size[DP] * size[CP]
    named = {
        "tensor parallel": size[TP],
        "context parallel": size[CP],
        "data parallel": sharded,
        "replicated": size[REPLICATE],
        "pipeline parallel": size[PP],
        "loss": sharded * size[REPLICATE] if plan.stack.framework == "torchtitan" else 1,
    }
    if mesh.size(EP) > 1:
        named |= {"expert parallel": mesh.size(EP), "expert sharded": mesh.size(EDP)}
    yield from (name for name, ranks in named.items() if 1 < ranks < mesh.world)


def _norms(plan: Plan, mesh: Mesh) -> dict[str, int]:
    """Groups over which norms of gradients are summed, of their own even where others have the same ranks: those among
    which the distributed optimizer spreads a model, or those of a model, for experts and for all else."""
    if plan.parallel.strategy in SHARDING:
        instances = int(plan.parallel.options.get("num_distributed_optimizer_instances") or 1)
        return {"distributed optimizer instance": degrees(plan).world // instances}
    stages, experts = mesh.size(PP), plan.keys().get("num_experts")
    found = {"model parallel": mesh.size(TP) * stages}
    return found | ({"expert model parallel": mesh.size(ETP) * mesh.size(EP) * stages} if experts else {})


def peers_of(plan: Plan) -> tuple[int, int]:
    """How many peers a rank sends to directly, in exchanges of tokens or heads, round a ring, or to the stages beside
    it: those of groups that lie within one node, and of others."""
    mesh, given, options = mesh_of(plan), plan.parallel, plan.parallel.options
    megatron = plan.stack.framework in FRAMEWORKS
    counts: list[tuple[str, int]] = []
    if given.cp > 1 and (megatron or deepspeed_of(plan)):
        counts.append((CP, _sharing(given.cp, options)))
    if given.ep > 1 and not (megatron and options.get("moe_token_dispatcher_type", "allgather") in GATHERED):
        counts.append((EP, given.ep - 1))
    both = mesh.size(PP) > len(ENDS) and chunks_of(plan) > 1  # the first stage has one neighbour unless chunks go round
    counts.append((PP, min(given.pp - 1, 1 + both)))
    near = sum(count for axis, count in counts if _span(mesh, axis) <= NODE.ranks)
    return near, sum(count for _, count in counts) - near


def _sharing(ranks: int, options: Mapping[str, Any]) -> int:
    """Peers of a rank among those that share a sequence: all where heads are exchanged; both neighbours round a ring,
    which goes one way forward and the other way back; none where keys and values are gathered; where there are levels,
    all of its group and the neighbours among the others."""
    way = options.get("cp_comm_type") or "p2p"
    if way in HEAD_EXCHANGE.names:
        return ranks - 1
    inner, *outer = options.get("hierarchical_context_parallel_sizes") or (1, ranks)
    around, ring = (min(count - 1, len(ENDS)) for count in (prod(outer), ranks))
    return {"p2p": ring, "a2a+p2p": int(inner) - 1 + around}.get(way, 0)


def _span(mesh: Mesh, axis: str) -> int:
    """From a group's first rank to its last along an axis, all between included."""
    axes = mesh.experts if axis in dict(mesh.experts) and axis != PP else mesh.dense
    names = [name for name, _ in axes]
    return prod(size for _, size in axes[: names.index(axis) + 1])
