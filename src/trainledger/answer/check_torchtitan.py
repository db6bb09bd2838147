"""What of torchtitan's plans cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem, nearest
from trainledger.facts.float8 import LOW, NO_COMPILE, RECIPES
from trainledger.facts.sharding import SECOND
from trainledger.facts.torchtitan import COMPONENTS, NAME, OP, ROWS, Change, holds
from trainledger.ledger.budgeted import budget_of
from trainledger.ledger.run import every_of
from trainledger.ledger.software import components_of
from trainledger.ledger.strategy import fsdp_of
from trainledger.plan.degrees import degrees
from trainledger.plan.mesh import expert_tensor_degree
from trainledger.plan.schema import Plan

PARTS = f"stack.options.{COMPONENTS.section}.{COMPONENTS.key}"


def torchtitan_problems(plan: Plan) -> Iterator[Problem]:
    """Problems of a plan that torchtitan runs; of others, that they name its own switch."""
    if plan.stack.framework != NAME:
        if components_of(plan) is not None:
            yield Problem(PARTS, f"given with {plan.stack.framework}", f"{NAME} has it", "Say stack.compile alone.")
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
    yield from _components(plan)
    ranks, each = degrees(plan), expert_tensor_degree(plan)
    if ranks.ep > 1 and each > 1 and holds(Change.WHOLE_EXPERTS, plan.stack.versions.get(NAME, "")):
        since = ROWS[Change.WHOLE_EXPERTS].since
        yield Problem(
            "parallel.etp", f"found {each} with ep {ranks.ep}", f"{NAME} has none since {since}", "Leave it out."
        )


def _components(plan: Plan) -> Iterator[Problem]:
    """What is compiled must be known, and say of layers what `stack.compile` says."""
    given, path = components_of(plan), PARTS
    words = (COMPONENTS.model, COMPONENTS.loss)
    if given is None:
        return
    for one in given:
        if one not in words:
            near = nearest(one, words)
            fix = f"Did you mean {near}?" if near else ""
            yield Problem(path, f"found {one!r}", f"{' and '.join(words)} are known", fix)
    if (COMPONENTS.model in given) != bool(plan.stack.compile):
        need = f"stack.compile says whether layers are compiled, as {COMPONENTS.model!r} does here"
        yield Problem(path, f"found {list(given)} with compile {str(plan.stack.compile).lower()}", need)


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
