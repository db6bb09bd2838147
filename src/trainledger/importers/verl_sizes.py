"""verl's sizes that count every rank's sequences together, as its releases before `*_per_gpu` name them alone, told as
those of one rank.

Source: verl/workers/fsdp_workers.py and megatron_workers.py, __init__: `ppo_micro_batch_size //= ranks`.
"""

from __future__ import annotations

from trainledger.facts.import_rl import ACTOR, CRITIC, EACH, NODES, PER_NODE, SPREAD, TOGETHER
from trainledger.facts.import_verl_megatron import ACTOR as MEGATRON
from trainledger.facts.import_verl_megatron import CRITIC as MEGATRON_CRITIC
from trainledger.facts.import_verl_megatron import DEGREES
from trainledger.importers.settings import Settings

SPLIT = ("tp", "pp", "cp")  # degrees whose ranks see the same sequences


def each(given: Settings, megatron: bool) -> Settings:
    """What is given, with one rank's sizes in place of all ranks' where those alone are said."""
    values, places = dict(given.values), dict(given.places)
    for name in TOGETHER:
        own = f"{name}{EACH}"
        if not given.said(name) or values.get(name) == "null" or given.said(own):
            continue
        size = _each(given, name, megatron)
        if size is not None:
            values[own], places[own] = size, given.where(name)
    return Settings(values, places, given.piece)


def _each(given: Settings, name: str, megatron: bool) -> int | None:
    """One rank's part of a size; None where it is no size, or less than one for each rank (which is noted)."""
    whole, nodes = given.whole(name), given.whole(NODES) if given.has(NODES) else 1
    per = given.whole(PER_NODE) if given.said(PER_NODE) else None
    if whole is None or nodes is None or (per is None and given.said(PER_NODE)):
        return None
    if per is None:
        given.refuse(
            name, whole, "it counts every rank's sequences, and no key says how many ranks", f"Say {PER_NODE}."
        )
        return None
    ranks = per * nodes // _alike(given, name, megatron)
    if whole < ranks:
        given.refuse(name, whole, f"at least one sequence for each of {ranks} ranks is needed", f"Write {name}{EACH}.")
        return None
    return whole // max(ranks, 1)


def _alike(given: Settings, name: str, megatron: bool) -> int:
    """Ranks that see the same sequences: of Megatron-Core's degrees, or of Ulysses'."""
    if megatron:
        part = MEGATRON_CRITIC if name.startswith(CRITIC) else MEGATRON
        names = [f"{part}{DEGREES[key]}" for key in SPLIT]
    else:
        part = CRITIC if name.startswith(CRITIC) else "" if name.startswith("data.") else ACTOR
        names = [f"{part}{SPREAD}"] if not name.startswith("reward_model.") else []
    product = 1
    for one in names:
        product *= (given.whole(one) if given.has(one) else None) or 1
    return product
