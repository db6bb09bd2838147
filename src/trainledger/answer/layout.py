"""Where every trained parameter lies: in which flat buffer or tensor, and which of its elements one rank has."""

from __future__ import annotations

from trainledger.answer.layout_megatron import of_plan
from trainledger.answer.layout_sharded import sharded
from trainledger.answer.places import Layout
from trainledger.base.problems import InputError, Problem
from trainledger.facts.default_words import MEGATRON_STRATEGIES
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan


def layout(plan: Plan, rank: int = 0) -> Layout:
    """Where the trained parameters of a resolved plan lie on one rank.

    Raises InputError for a rank that there is not, and naming every key of a plan whose layout is not known.
    """
    world = degrees(plan).world
    if not 0 <= rank < world:
        allowed = f"a number from 0 to {world - 1} is needed" if world > 1 else "the plan has one rank, 0"
        raise InputError([Problem("--rank", f"found {rank}", allowed)])
    if plan.parallel.strategy in MEGATRON_STRATEGIES:
        return of_plan(plan, rank)
    return sharded(plan, rank)
