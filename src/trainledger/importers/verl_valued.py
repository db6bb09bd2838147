"""What verl's FSDP workers say of the critic and the reward model: their own recomputation, adapter, sequence
parallelism, and what of them leaves the device between phases."""

from __future__ import annotations

from trainledger.facts.import_rl import ACTOR, CRITIC, REWARD
from trainledger.facts.import_verl_megatron import STATES
from trainledger.importers.piece import Piece
from trainledger.importers.settings import Settings

ULYSSES = "ulysses_sequence_parallel_size"
OWN, COUNT = "roles.critic.", f"{CRITIC}{ULYSSES}"


def critic_keys(given: Settings, piece: Piece) -> None:
    """The critic's own keys; it spreads a sequence over its own degree, 1 where none is said, whatever the policy's."""
    degree = given.whole(COUNT) if given.has(COUNT) else None
    if "parallel.cp" in piece.given or (degree or 1) > 1:
        where = COUNT if given.has(COUNT) else f"{ACTOR}{ULYSSES}"
        given.give(f"{OWN}parallel.cp", degree or 1, where)
        given.give(f"{OWN}parallel.options.cp_comm_type", "ulysses" if (degree or 1) > 1 else None, where)
    again, policys = f"{CRITIC}model.enable_gradient_checkpointing", piece.given.get("stack.recompute.kind")
    if given.values.get(again) is not None:
        given.give(f"{OWN}stack.recompute", _recompute(given.has(again)), again)
    elif policys is not None and policys.value == "none":
        piece.give(f"{OWN}stack.recompute", _recompute(True), policys.where)
    rank = f"{CRITIC}model.lora_rank"
    if given.has(rank) and given.whole(rank, 0):
        targets = given.texts(f"{CRITIC}model.target_modules")
        named = targets if targets and targets != ["all-linear"] else "all-linear"
        given.give(f"{OWN}adapter", {"kind": "lora", "r": given.whole(rank), "targets": named}, rank)
    _away(given, CRITIC, f"{OWN}states.idle")
    _number(given, f"{CRITIC}forward_micro_batch_size_per_gpu", f"{OWN}forward_batch")


def reward_keys(given: Settings) -> None:
    """The reward model's batch, and whether its weights wait in the host's memory."""
    _number(given, f"{REWARD}micro_batch_size_per_gpu", "roles.reward.forward_batch")
    away = f"{REWARD}model.fsdp_config.param_offload"
    if given.has(away):
        given.give("roles.reward.states.idle", "offloaded", away)


def _recompute(on: bool) -> dict[str, object]:
    return {"kind": "full", "reentrant": False} if on else {"kind": "none"}


def _away(given: Settings, role: str, path: str) -> None:
    names = [f"{role}model.fsdp_config.{one}_offload" for one in ("param", "optimizer")]
    state = STATES.get((given.has(names[0]), given.has(names[1])))
    given.give(path, state, next(filter(given.has, names), names[0]))


def _number(given: Settings, name: str, path: str) -> None:
    if given.has(name):
        given.give(path, given.whole(name), name)
