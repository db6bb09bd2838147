"""Who acts beside the policy in ms-swift's GRPO: reference, reward model, vLLM colocated or as a server."""

from __future__ import annotations

from trainledger.facts.import_swift import SWIFT_BETA, SWIFT_SERVER, SWIFT_SHARE
from trainledger.facts.import_verl_megatron import STATES
from trainledger.importers.front_end import FrontEnd
from trainledger.importers.swift_run import kind_of

SERVER, GENERATING = "server", "rollout"
OFFLOADS = ("offload_model", "offload_optimizer")


def grpo_roles(front: FrontEnd) -> None:
    """Give the roles. The reference is a model of its own where no adapter is trained and the divergence has a weight;
    models that are offloaded are away while vLLM generates."""
    own, piece = front.own, front.piece
    piece.give("roles.policy.placement", "colocated", own.where("rlhf_type"))
    away = {name: bool(own.flag(name)) for name in OFFLOADS}
    state = STATES.get((away[OFFLOADS[0]], away[OFFLOADS[1]]))
    if state and own.flag("use_vllm"):
        piece.give(f"roles.policy.states.{GENERATING}", state, own.where(*(name for name in OFFLOADS if away[name])))
    beta = own.number("beta")
    if not kind_of(front) and beta != 0:  # full training
        if beta is None:
            piece.fill(SWIFT_BETA.path, SWIFT_BETA.value, SWIFT_BETA.why, SWIFT_BETA.source)
        else:
            piece.give(SWIFT_BETA.path, SWIFT_BETA.value, own.where("beta"))
        if away[OFFLOADS[0]] and own.flag("use_vllm"):
            piece.give(f"roles.reference.states.{GENERATING}", "offloaded", own.where(OFFLOADS[0]))
    if models := own.texts("reward_model"):
        piece.give("roles.reward.model", models[0], own.where("reward_model"))
    if own.flag("use_vllm"):
        _engine(front)


def _engine(front: FrontEnd) -> None:
    own, piece = front.own, front.piece
    if own.text("vllm_mode") == SERVER:
        piece.fill(SWIFT_SERVER.path, SWIFT_SERVER.value, SWIFT_SERVER.why, SWIFT_SERVER.source)
        return
    share = own.number("vllm_gpu_memory_utilization")
    if share is not None:
        piece.give(SWIFT_SHARE.path, share, own.where("vllm_gpu_memory_utilization"))
    else:
        piece.fill(SWIFT_SHARE.path, SWIFT_SHARE.value, SWIFT_SHARE.why, SWIFT_SHARE.source)
    if (tp := own.whole("vllm_tensor_parallel_size", least=1)) is not None:
        piece.give("roles.rollout.parallel.tp", tp, own.where("vllm_tensor_parallel_size"))
    if level := own.whole("sleep_level", least=0):
        piece.give("roles.rollout.engine.sleep_level", level, own.where("sleep_level"))
