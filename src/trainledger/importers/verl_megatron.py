"""verl's command lines where Megatron-Core trains: the policy's degrees and recompute, and those of its roles."""

from __future__ import annotations

from trainledger.facts.import_rl import PRECISIONS
from trainledger.facts.import_verl_megatron import (
    ACTOR,
    ADAPTER,
    AGAIN,
    BACKEND,
    BACKENDS,
    CLIP,
    CORE,
    CRITIC,
    DEGREES,
    DISTRIBUTED,
    DTYPE,
    ENTROPY,
    GRANULARITIES,
    LAYERS,
    METHOD,
    MODULES,
    OPTIMIZER,
    PARAMS,
    REF,
    SEQUENCE,
    STATES,
    STRAIGHT,
)
from trainledger.facts.megatron import BRIDGED
from trainledger.importers.piece import Piece
from trainledger.importers.settings import Settings


def trains(given: Settings, engine: str) -> bool:
    """Whether Megatron-Core trains: as the strategy says, or keys of its own."""
    return engine == "megatron" or any(key.startswith(ACTOR) for key in given.values)


def policy(given: Settings, piece: Piece, strategy: str) -> None:
    """The policy's keys; `strategy`: the key that names it."""
    piece.give("stack.framework", BRIDGED, given.where(strategy))
    off = given.values.get(f"{ACTOR}{DISTRIBUTED}") is not None and not given.has(f"{ACTOR}{DISTRIBUTED}")
    piece.give("parallel.strategy", "megatron-ddp" if off else "megatron-distopt", given.where(strategy))
    degrees = _degrees(given, "", ACTOR)
    whole = given.values.get(f"{ACTOR}{SEQUENCE}") is not None and not given.has(f"{ACTOR}{SEQUENCE}")
    if degrees.get("tp", 1) > 1:
        piece.give("parallel.sp", not whole, given.where(f"{ACTOR}{SEQUENCE}"))
    for name, path in STRAIGHT.items():
        if given.has(name):
            given.give(path, given.whole(name), name)
    for name, path in ((DTYPE, "weights"), (DTYPE, "compute")):
        if given.has(name):
            given.give(f"precision.{path}", given.choice(name, PRECISIONS), name)
    if given.has(BACKEND):
        given.give("stack.attention", given.choice(BACKEND, BACKENDS), BACKEND)
    if given.has(CLIP):
        given.give("optimizer.grad_clip", given.number(CLIP), CLIP)
    if given.has(ENTROPY) and given.number(ENTROPY):
        given.give("stack.options.entropy_coeff", given.number(ENTROPY), ENTROPY)
    if given.has(ADAPTER) and given.whole(ADAPTER, 0):
        given.give("adapter.kind", "lora", ADAPTER)
        given.give("adapter.r", given.whole(ADAPTER), ADAPTER)
        piece.give("adapter.targets", "all-linear", given.where(ADAPTER))
    _recompute(given, piece)


def _degrees(given: Settings, under: str, part: str) -> dict[str, int]:
    """Degrees that a part of the configuration names."""
    found: dict[str, int] = {}
    for key, name in DEGREES.items():
        if given.has(f"{part}{name}") and (size := given.whole(f"{part}{name}")) is not None:
            given.give(f"{under}parallel.{key}", size, f"{part}{name}")
            found[key] = size
    return found


def _recompute(given: Settings, piece: Piece) -> None:
    if not given.has(AGAIN) or str(given.values[AGAIN]) == "null":
        return
    kind = given.choice(AGAIN, GRANULARITIES)
    given.give("stack.recompute.kind", kind, AGAIN)
    if kind == "selective":
        piece.give("stack.recompute.modules", given.texts(MODULES) or list(CORE), given.where(MODULES))
        return
    if given.has(METHOD):
        given.give("stack.recompute.method", given.text(METHOD), METHOD)
    if given.has(LAYERS):
        given.give("stack.recompute.num_layers", given.whole(LAYERS), LAYERS)


def roles(given: Settings, piece: Piece, acting: frozenset[str]) -> None:
    """What leaves the device while a role does not act, and degrees of its own; `acting`: the roles that there are. The
    reference has the policy's unless it names some; the critic has 1 of each that it does not name."""
    for role, part in (("policy", ACTOR), ("reference", REF), ("critic", CRITIC)):
        if role not in acting:
            continue
        follows = role == "reference" and f"{REF}{PARAMS}" not in given.values
        first = f"{ACTOR if follows else part}{PARAMS}"
        away = given.has(first), role != "reference" and given.has(f"{part}{OPTIMIZER}")
        state = "offloaded" if role == "reference" and away[0] else STATES.get(away)
        if state:
            piece.give(f"roles.{role}.states.idle", state, given.where(first if away[0] else f"{part}{OPTIMIZER}"))
    if "reference" in acting and any(f"{REF}{name}" in given.values for name in DEGREES.values()):
        _apart(given, piece, "reference", REF, ACTOR)
    if "critic" in acting:
        _apart(given, piece, "critic", CRITIC, "")


def _apart(given: Settings, piece: Piece, role: str, part: str, base: str) -> None:
    """A role's own degrees; those that it does not name are those of `base`, or 1."""
    found = _degrees(given, f"roles.{role}.", part)
    for key, name in DEGREES.items():
        if key in found or not base or not given.has(f"{base}{name}"):
            continue
        if (size := given.whole(f"{base}{name}")) is not None:
            given.give(f"roles.{role}.parallel.{key}", size, f"{base}{name}")
            found[key] = size
    if "tp" not in found:
        piece.give(f"roles.{role}.parallel.tp", 1, given.where(f"{part}{DEGREES['tp']}"))
    if found.get("tp", 1) > 1:
        piece.give(f"roles.{role}.parallel.sp", True, given.where(f"{part}{DEGREES['tp']}"))
