"""What of torchtitan's plans cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem, nearest
from trainledger.facts.float8 import LOW, NO_COMPILE, RECIPES
from trainledger.facts.sharding import SECOND
from trainledger.facts.torchtitan import NAME, OP, ROWS, Change, holds
from trainledger.ledger.budgeted import budget_of
from trainledger.ledger.run import every_of
from trainledger.ledger.strategy import fsdp_of
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import expert_tensor_degree
from trainledger.plan.schema import Plan


def torchtitan_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan that torchtitan runs; none of others."""
    if plan.stack.framework != NAME:
        return
    given = plan.stack.recompute
    if given.modules:
        yield Problem("stack.recompute.modules", f"given with {NAME}", f"its policies are {OP!r} and every n-th layer")
    elif given.kind == "selective" and budget_of(given.policy) is not None:
        if not plan.stack.compile:
            need = "the compiler keeps within a budget: stack.compile is needed"
            yield Problem("stack.recompute.policy", f"found {given.policy!r} without compile", need)
    elif given.kind == "selective" and given.policy != OP and not every_of(given.policy):
        need = f"{OP!r}, every n-th layer or a memory budget is needed"
        yield Problem("stack.recompute.policy", f"found {given.policy!r}", need)
    if given.reentrant:
        yield Problem("stack.recompute.reentrant", f"found true with {NAME}", "it recomputes without reentrance")
    yield from _low(plan)
    ranks, each = degrees(plan), expert_tensor_degree(plan)
    if ranks.ep > 1 and each > 1 and holds(Change.WHOLE_EXPERTS, plan.stack.versions.get(NAME, "")):
        since = ROWS[Change.WHOLE_EXPERTS].since
        yield Problem(
            "parallel.etp", f"found {each} with ep {ranks.ep}", f"{NAME} has none since {since}", "Leave it out."
        )


def _low(plan: Plan) -> Iterator[Problem]:
    given = plan.precision.fp8
    if given is None:
        return
    if plan.precision.compute not in LOW:
        yield Problem("precision.fp8", f"given beside compute {plan.precision.compute}", f"{', '.join(LOW)} have it")
    for name in ("format", "param_gather", "modules"):
        if getattr(given, name) is not None:
            yield Problem(
                f"precision.fp8.{name}", f"given with {NAME}", "torchao's converters have no such setting here"
            )
    if given.recipe is not None and given.recipe not in RECIPES:
        near = nearest(given.recipe, RECIPES)
        fix = f"Did you mean {near}?" if near else ""
        yield Problem("precision.fp8.recipe", f"found {given.recipe!r}", f"{', '.join(RECIPES)} are known", fix)
    if given.kernels not in (None, NO_COMPILE.kernels):
        yield Problem("precision.fp8.kernels", f"found {given.kernels!r}", f"{NO_COMPILE.kernels} is known")
    if given.all_gather and fsdp_of(plan) != SECOND:
        yield Problem(
            "precision.fp8.all_gather", f"found true with {plan.parallel.strategy}", "FSDP2 gathers in 8 bits"
        )
