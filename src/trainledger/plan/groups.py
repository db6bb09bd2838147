"""The communicators that a rank opens: one for each kind of group of more than one rank in which it takes part."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.facts.megatron import FRAMEWORKS
from trainledger.facts.meshes import CP, DP, EDP, EP, ETP, PP, TP
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import mesh_of
from trainledger.plan.schema import Plan


def groups_of(plan: Plan) -> tuple[str, ...]:
    """Names of the groups whose communicators a rank of the plan opens (those of one rank have none).

    Source: megatron/core/parallel_state.py (0.14 to 0.19); NCCL opens a communicator at its group's first collective.
    """
    if degrees(plan).world == 1:
        return ()
    return ("all ranks", *(_megatron(plan) if plan.stack.framework in FRAMEWORKS else ()))


def _megatron(plan: Plan) -> Iterator[str]:
    mesh, keys = mesh_of(plan), plan.keys()
    size = {name: mesh.size(name) for name in (TP, CP, DP, PP)}
    named = {
        "tensor parallel": size[TP],
        "context parallel": size[CP],
        "data parallel": size[DP] * size[CP],
        "pipeline parallel": size[PP],
        "model parallel": size[TP] * size[PP] if size[TP] > 1 and size[PP] > 1 else 1,  # the norm of gradients
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
