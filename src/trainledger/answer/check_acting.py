"""What of roles cannot be estimated, or contradicts itself: each by its key."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from trainledger.base.problems import InputError, Problem, nearest
from trainledger.base.units import format_size
from trainledger.facts.megatron import FRAMEWORKS as MEGATRON
from trainledger.facts.phases import (
    DISTILL,
    POLICY,
    ROLES,
    ROLLOUT,
    TASKS,
    TEACHER,
    TRAINED,
    VALUED,
    iteration_of,
    phases_of,
)
from trainledger.ledger.rollout import Rollout
from trainledger.plan.acting import COLOCATED, IDLE, Engine, Role
from trainledger.plan.degrees import degrees
from trainledger.plan.roles import SECTIONS, role_plan
from trainledger.plan.schema import Plan

# strategies under which a frozen forward has rules
UNSHARDED = ("megatron-ddp", "megatron-distopt")
FORWARDS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp2", "hsdp")


def acts(plan: Plan) -> bool:
    """Whether a plan says who acts."""
    given = plan.roles
    return given is not None and plan.task in TASKS and any(getattr(given, name) for name in type(given).model_fields)


def acting_problems(plan: Plan, check: Callable[[Plan], None]) -> Iterator[Problem]:
    """Keys of a plan with roles, or that should have some; `check` looks at the plan of one role."""
    if plan.task == DISTILL:
        yield from _teaches(plan, check)
        return
    if plan.roles is None:
        if plan.task in TASKS:
            fix = (
                "Name who lies on the devices besides the policy, as in roles: {reference: {}, rollout: {engine: ...}}"
            )
            yield Problem("roles", f"missing in a plan of {plan.task}", "the roles that act are needed", f"{fix}.")
        return
    if plan.task not in TASKS and dict(plan.roles.given()).keys() - {POLICY}:
        yield Problem("roles", f"given with task {plan.task!r}", f"roles act in {', '.join(TASKS)}", "Leave them out.")
    if not acts(plan):
        return
    if plan.roles.teacher is not None:
        yield Problem("roles.teacher", f"given with task {plan.task!r}", f"a teacher acts in {DISTILL}")
    if plan.stack.framework in MEGATRON:
        yield from _megatron(plan)
    for name, role in plan.roles.given():
        yield from (_under(name, one) for one in _role(plan, name, role))
        if name != POLICY and name != ROLLOUT:
            try:
                check(_unsaved(role_plan(plan, name)))
            except InputError as error:
                valued = name in VALUED  # whose loss, of one number for each token, is not the trainer's
                yield from (_under(name, one) for one in error.problems if not valued or one.path != "stack.loss")


def _megatron(plan: Plan) -> Iterator[Problem]:
    """What Megatron-Core's roles need: an engine that generates, and models without layers for further tokens."""
    if plan.roles is None or plan.roles.rollout is None:
        fix = "Set roles.rollout: {engine: {memory_share: 0.5}}."
        yield Problem("roles.rollout", f"missing with {plan.stack.framework}", "an engine generates there", fix)
    if plan.keys().get("num_nextn_predict_layers"):
        fix = "Set model.num_nextn_predict_layers: 0."
        yield Problem("model.num_nextn_predict_layers", "given with roles", "verl builds none unless told to", fix)


def _teaches(plan: Plan, check: Callable[[Plan], None]) -> Iterator[Problem]:
    """A student's plan has a teacher and nobody else, on the same devices and there all the time."""
    if plan.roles is None or plan.roles.teacher is None:
        yield Problem(
            "roles.teacher", "missing", "the model that is distilled is needed", "roles: {teacher: {model: ...}}"
        )
        return
    teacher = plan.roles.teacher
    for name in dict(plan.roles.given()).keys() - {POLICY, TEACHER}:
        yield Problem(f"roles.{name}", f"given with task {plan.task!r}", "a teacher alone acts there", "Leave it out.")
    if teacher.placement != COLOCATED or teacher.states or teacher.forward_batch:
        found = "a place, states or a batch of its own"
        yield Problem("roles.teacher", found, "TRL's GKD runs it beside the student on each batch", "Leave them out.")
    own = role_plan(plan, TEACHER)
    if own.parallel.strategy not in FORWARDS or degrees(own).pp > 1:
        found = f"found {own.parallel.strategy!r}"
        yield _under(TEACHER, Problem("parallel.strategy", found, f"{', '.join(FORWARDS)} can be estimated so far"))
    try:
        check(_unsaved(own))
    except InputError as error:
        yield from (_under(TEACHER, one) for one in error.problems)


def _unsaved(own: Plan) -> Plan:
    """A role has no `save` of its own: the plan's is looked at once, and a critic without an adapter is saved whole."""
    return own.model_copy(update={"save": None})


def _under(name: str, problem: Problem) -> Problem:
    return replace(problem, path=f"roles.{name}.{problem.path}".rstrip("."))


def _role(plan: Plan, name: str, role: Role) -> Iterator[Problem]:
    known = (IDLE, *dict.fromkeys(phase.name for phase in phases_of(plan.task, plan.stack.framework, True)))
    for phase in role.states:
        if phase not in known:
            near = nearest(phase, known)
            fix = f"Did you mean {near}?" if near else ""
            yield Problem(f"states.{phase}", "no phase of this task", f"there are {', '.join(known)}", fix)
    actors = {phase.role for engine in (True, False) for phase in phases_of(plan.task, plan.stack.framework, engine)}
    if name not in actors and name != TEACHER:
        allowed = f"{', '.join(one for one in ROLES if one in actors)} act in it"
        yield Problem("", f"given with task {plan.task!r}", allowed, "Leave it out.")
    if name == POLICY and role.placement != COLOCATED:
        fix = "Place the others, as in roles: {reward: {placement: 2}}."
        yield Problem("placement", f"found {role.placement}", "the policy lies on the plan's own devices", fix)
    if name == POLICY and (role.model is not None or any(getattr(role, key) is not None for key in SECTIONS)):
        yield Problem("", "keys of a plan", "the policy's are the plan's own", "Move them up.")
    if name == ROLLOUT:
        yield from _engine(plan, role)
        return
    own = role_plan(plan, name)
    if role.placement != COLOCATED and degrees(own).world != role.placement:
        found = f"found {role.placement}, and parallel for {degrees(own).world} ranks"
        yield Problem("placement", found, "as many devices as ranks are needed", "Leave the role's degrees out.")
    if role.engine is not None:
        yield Problem("engine", "given", "only rollout has an engine", "Leave it out.")
    yield from _at_once(plan, name, role)
    megatron = own.stack.framework in MEGATRON
    if megatron != (plan.stack.framework in MEGATRON):
        allowed = "all roles but the engine run under the policy's, or none under Megatron-Core"
        yield Problem("stack.framework", f"found {own.stack.framework!r}", allowed)
        return
    forwards = UNSHARDED if megatron else FORWARDS
    if own.parallel.strategy not in forwards:
        found = f"found {own.parallel.strategy!r}"
        yield Problem("parallel.strategy", found, f"{', '.join(forwards)} can be estimated of a forward so far")
    if degrees(own).pp > 1 and not megatron:
        yield Problem("parallel.pp", f"found {degrees(own).pp}", "1 can be estimated of a forward so far")


def _at_once(plan: Plan, name: str, role: Role) -> Iterator[Problem]:
    """What a trainer that trains two roles in one function cannot do."""
    row = iteration_of(plan.task, plan.stack.framework)
    if row is None or not row.together:
        return
    if role.placement != COLOCATED:
        fix = "Leave it out."
        yield Problem("placement", f"found {role.placement}", "ColossalChat has every model on the same devices", fix)
    if name in TRAINED and role.states:
        yield Problem("states", "given", "ColossalChat moves its frozen models alone", "Leave them out.")


def _engine(plan: Plan, role: Role) -> Iterator[Problem]:
    engine = role.engine
    if engine is None or (engine.memory_share is None and engine.tokens is None and engine.sequences is None):
        fix = "Set engine: {memory_share: 0.5}, or the tokens or sequences that its cache holds."
        yield Problem("engine", "without a size", "the size of its cache is needed", fix)
        return
    sizes = [name for name in ("memory_share", "tokens", "sequences") if getattr(engine, name) is not None]
    if sizes[1:]:
        yield Problem("engine", f"found {' and '.join(sizes)}", "one of them sizes the cache", "Leave the others out.")
    elif engine.memory_share is not None and plan.device is None:
        yield Problem("engine.memory_share", "given without a device", "the share is one of the device's memory")


def check_share(engine: Engine, made: Rollout, usable: int | None) -> None:
    """Raise InputError for a share of the device that leaves no page of the cache beside the engine's weights."""
    if engine.memory_share is None or usable is None or any(line.unit for line, _ in made.pool[-1:]):
        return
    weights = sum(line.unit * copies for line, copies in made.weights) + (engine.overhead or 0)
    found = f"found {engine.memory_share:g}: {format_size(int(engine.memory_share * usable))} of the device"
    allowed = f"the engine's weights and overhead take {format_size(weights)}, and its cache needs room beside them"
    fix = f"Set it above {weights / usable:.2f}, or the engine's parallel.tp higher."
    raise InputError([Problem("roles.rollout.engine.memory_share", found, allowed, fix)])
