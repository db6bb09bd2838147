"""Who acts beside the policy, as verl's and OpenRLHF's command lines say it."""

from __future__ import annotations

from collections.abc import Mapping

from trainledger.base.units import MIB
from trainledger.facts.import_rl import (
    ACTING,
    ACTOR,
    AWAY,
    BUCKET,
    BUCKETS,
    CRITIC_FILLED,
    CRITIC_TOKENS,
    DYNAMIC,
    ENGINE_TP,
    FREES,
    KL,
    MODEL,
    NAMES,
    NODE,
    OPENRLHF_ENGINE,
    OPENRLHF_LOSS,
    REF_SCORED,
    REF_SCORED_TOKENS,
    ROLLOUT,
    SCORED,
    SCORED_TOKENS,
    SHARE,
    TOKENS,
    VERL_BUCKET,
    VERL_ENGINE,
    VERL_LOSS,
    VERL_REF,
    VERL_SLEEP,
    VERL_TOKENS,
    VERL_TUNED,
)
from trainledger.facts.import_rows import FilledRow
from trainledger.facts.import_verl_megatron import ADAPTER, STATES
from trainledger.facts.option_row import Direction
from trainledger.importers import verl_megatron
from trainledger.importers.draft import Uncounted
from trainledger.importers.piece import Piece
from trainledger.importers.settings import Settings
from trainledger.importers.verl_valued import critic_keys, reward_keys

OFF = (False, "False", "false")


def verl_roles(given: Settings, piece: Piece, megatron: bool) -> None:
    """The reference where a divergence is asked for, the critic, the reward model, and vLLM's engine."""
    if not megatron:
        _fill(piece, VERL_LOSS)
    ranks = (one for one in (f"{MODEL}lora_rank", ADAPTER) if given.has(one))
    tuned = given.has(f"{MODEL}lora_adapter_path") or any(given.whole(one, 0) for one in ranks)
    _scored(given, "policy", SCORED, SCORED_TOKENS)
    if not megatron and (state := STATES.get((given.has(AWAY[0]), given.has(AWAY[1])))):
        piece.give("roles.policy.states.idle", state, given.where(next(filter(given.has, AWAY))))
    if any(given.has(name) for name in KL) and not tuned:  # an adapter that is switched off is its own reference
        if megatron:
            piece.give("roles.reference.placement", "colocated", given.where(next(filter(given.has, KL))))
        else:
            _fill(piece, VERL_REF)
        _scored(given, "reference", REF_SCORED, REF_SCORED_TOKENS)
    _valued(given, piece, megatron)
    if megatron:
        named = {path.split(".")[1] for path in piece.given if path.startswith("roles.")}
        verl_megatron.roles(given, piece, frozenset({"policy", *named}))
    if given.has(DYNAMIC) and any(path.startswith("roles.critic.") for path in piece.given):
        packed(given, CRITIC_FILLED.path, CRITIC_TOKENS, CRITIC_FILLED, "roles.critic.parallel.cp")
    _engine(given, piece, tuned)


def _valued(given: Settings, piece: Piece, megatron: bool) -> None:
    """The critic and the reward model."""
    scores = "reward_model.enable"
    if given.has("critic.enable") or piece.given["task"].value == "ppo":
        _model(given, "critic", "critic.model.path")
        _number(given, "critic.ppo_micro_batch_size_per_gpu", "roles.critic.batch.micro_batch")
        if not megatron:
            critic_keys(given, piece)
    if given.has(scores) and megatron:  # an engine of its own scores
        piece.uncounted.append(Uncounted(scores, given.where(scores), Direction.LOW.value))
    elif given.has(scores):
        _model(given, "reward", "reward_model.model.path")
        reward_keys(given)


def _engine(given: Settings, piece: Piece, tuned: bool) -> None:
    """The engine's share, ranks, buckets and sleep."""
    if given.said(SHARE):
        given.give("roles.rollout.engine.memory_share", given.number(SHARE), SHARE)
    _number(given, ENGINE_TP, "roles.rollout.parallel.tp")
    if given.values.get(f"{ROLLOUT}name") == BUCKETS:
        if given.said(BUCKET) and (size := given.whole(BUCKET)) is not None:
            given.give("roles.rollout.engine.bucket", size * MIB, BUCKET)
        _fill(piece, VERL_BUCKET)
    for row in (*VERL_ENGINE, *(() if given.values.get(FREES) in OFF else (VERL_TUNED if tuned else VERL_SLEEP,))):
        _fill(piece, row)


def packed(given: Settings, path: str, name: str, row: FilledRow, spread: str) -> None:
    """Tokens of a row that is packed: so many for each of the ranks over which a sequence is spread."""
    ranks = given.piece.given.get(spread)
    count = ranks.value if ranks is not None and isinstance(ranks.value, int) else 1
    if given.has(name) and (tokens := given.whole(name)) is not None:
        given.give(path, tokens * count, name)
    elif isinstance(row.value, int):
        given.piece.fill(path, row.value * count, row.why, row.source)


def _scored(given: Settings, role: str, many: str, tokens: str) -> None:
    """Sequences of a role's forward; of packed rows, how many of the policy's it takes."""
    if given.has(DYNAMIC):
        own = (given.whole(TOKENS) if given.has(TOKENS) else None) or VERL_TOKENS.value
        if given.has(tokens) and isinstance(own, int) and (count := given.whole(tokens)) is not None:
            given.give(f"roles.{role}.forward_batch", -(-count // own), tokens)
        return
    _number(given, many, f"roles.{role}.forward_batch")


def openrlhf_roles(given: Settings, piece: Piece) -> None:
    """The reference unless the divergence has no weight, the reward model where it is named, the critic where values
    are read, vLLM's engines."""
    said = {word: next((name for name in names if given.said(name)), "") for word, names in ACTING.items()}
    together = bool(said["together"])
    _fill(piece, OPENRLHF_LOSS)
    _number(given, said["forward"], "roles.policy.forward_batch")
    if not said["kl"] or given.number(said["kl"]):
        _placed(given, said, ("reference", "ref"), together or bool(said["with_reference"]))
        if said["reference_away"]:
            given.give("roles.reference.states.idle", "offloaded", said["reference_away"])
    for role, name in (("critic", _critic(given, piece, said)), ("reward", said["reward"])):
        if name:
            given.give(f"roles.{role}.model", (given.text(name) or "").partition(",")[0] or None, name)
            _placed(given, said, (role, role), together)
    if said["reward"] and said["reward_away"]:
        given.give("roles.reward.states.idle", "offloaded", said["reward_away"])
    if said["engines"]:
        _engines(given, said, together)
        _fill(piece, OPENRLHF_ENGINE)


def _critic(given: Settings, piece: Piece, said: Mapping[str, str]) -> str:
    """The argument that names the critic's model: its own, else the reward model's, or the policy's where a program or
    a server scores; empty where no values are read."""
    if piece.given["task"].value != "ppo":
        return ""
    scores = "" if said["scorer"] else said["reward"]
    return said["critic"] or scores or next((name for name in NAMES["model"] if given.said(name)), "")


def _engines(given: Settings, said: Mapping[str, str], together: bool) -> None:
    count = given.whole(said["engines"], 0) or 1
    tp = (given.whole(said["engine_tp"]) if said["engine_tp"] else None) or 1
    given.give("roles.rollout.parallel.tp", tp, said["engine_tp"] or said["engines"])
    if not together:
        given.give("roles.rollout.placement", count * tp, said["engines"])
    if said["share"]:
        given.give("roles.rollout.engine.memory_share", given.number(said["share"]), said["share"])
    if said["sleep"]:
        given.give("roles.rollout.engine.sleep_level", 1, said["sleep"])


def _placed(given: Settings, said: Mapping[str, str], who: tuple[str, str], together: bool) -> None:
    """A role's own devices, unless it lies with the policy; its forward's batch."""
    role, word = who
    nodes, gpus = said[f"{word}_nodes"], said[f"{word}_gpus"]
    where = gpus or nodes or f"--{word}.num_gpus_per_node"
    if together:
        given.piece.give(f"roles.{role}.placement", "colocated", given.where(where))
    else:
        count = (given.whole(nodes) if nodes else None) or 1
        per = (given.whole(gpus) if gpus else None) or NODE
        given.piece.give(f"roles.{role}.placement", count * per, given.where(where))
    _number(given, said["forward"], f"roles.{role}.forward_batch")


def _model(given: Settings, role: str, name: str) -> None:
    if given.has(name):
        given.give(f"roles.{role}.model", given.text(name), name)
    else:
        given.piece.give(f"roles.{role}.placement", "colocated", given.where(f"{ACTOR}strategy"))


def _number(given: Settings, name: str, path: str) -> None:
    if name and given.said(name):
        given.give(path, given.whole(name), name)


def _fill(piece: Piece, row: FilledRow) -> None:
    if row.path not in piece.given:
        piece.fill(row.path, row.value, row.why, row.source)
