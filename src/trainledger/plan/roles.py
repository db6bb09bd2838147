"""The plan of each role: the run's plan with the role's own keys laid over it."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from math import prod
from typing import Any

from trainledger.facts.megatron import FRAMEWORKS as MEGATRON
from trainledger.facts.phases import POLICY, REWARD, ROLLOUT, SAMPLING, TEACHER, TRAINED, VALUED
from trainledger.facts.versions import at_least
from trainledger.plan.acting import COLOCATED, Role, Roles
from trainledger.plan.schema import NULL_MEANS_LEFT_OUT, Plan, as_mapping

SECTIONS = ("adapter", "quantization", "precision", "optimizer", "batch", "parallel", "offload", "stack")
DEGREES = ("world", "dp", "shard", "tp", "pp", "cp", "ep", "etp", "vpp", "sp", "schedule")
STEPS = ("global", "accumulation", "loss_tokens")  # of a batch: what only a trained role has


def overlaid(data: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A plan as plain data, of one role: what the plan gives, and over it what its role `name` gives.

    A role with degrees of its own, or devices of its own, takes none of the plan's; an adapter is the policy's alone
    unless a role gives one.
    """
    roles = data.get("roles")
    role = (roles.get(name) if isinstance(roles, dict) else None) or {}
    found = {key: value for key, value in data.items() if key != "roles"}
    if not isinstance(role, dict):
        return found
    role = _said(role)
    if name not in TRAINED:
        found["batch"] = {key: value for key, value in _map(found, "batch").items() if key not in STEPS[:-1]}
        found |= {"adapter": None}
    if name == TEACHER:  # which is only run
        found["task"] = "sft"
    if name in VALUED and _map(found, "stack").get("framework") not in MEGATRON:
        found["stack"] = {**_map(found, "stack"), "loss": "full"}
    if role.get("model") is not None:
        found["model"] = role["model"]
    found["parallel"] = _parallel(found, role)
    if name == ROLLOUT:  # an engine shards nothing over its replicas
        found["parallel"] = {
            "strategy": "ddp",
            **{key: found["parallel"][key] for key in DEGREES if key in found["parallel"]},
        }
    for section in SECTIONS:
        given = role.get(section)
        if section in role and section != "parallel":
            found[section] = {**_map(found, section), **given} if isinstance(given, dict) else given
    return found


def _said(role: Mapping[str, Any]) -> dict[str, Any]:
    """A role's keys without nulls that mean that a key is left out."""
    found = deepcopy(dict(role))
    for *outer, last in NULL_MEANS_LEFT_OUT:
        part: Any = found
        for key in outer:
            part = part.get(key) if isinstance(part, dict) else None
        if isinstance(part, dict) and last in part and part[last] is None:
            del part[last]
    return found


def _map(data: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = data.get(key)
    return dict(value) if isinstance(value, dict) else {}


def _parallel(data: Mapping[str, Any], role: Mapping[str, Any]) -> dict[str, Any]:
    base, own, place = _map(data, "parallel"), role.get("parallel") or {}, role.get("placement", COLOCATED)
    if not isinstance(own, dict):
        return base
    if place == COLOCATED and not any(key in own for key in DEGREES):
        return {**base, **own}
    world = _world(base) if place == COLOCATED else place
    kept = {key: value for key, value in base.items() if key not in DEGREES}
    if world is not None and "world" not in own and "dp" not in own:
        kept["world"] = world
    return {**kept, **own}


def _world(base: Mapping[str, Any]) -> Any:
    """All ranks of the plan's own degrees; None where they are left out, or are no numbers."""
    inner = [base.get(key, 1) for key in ("dp", "tp", "cp", "pp")]
    if "world" in base or "dp" not in base or not all(type(one) is int for one in inner):
        return base.get("world")
    return prod(inner)


def role_plan(plan: Plan, name: str) -> Plan:
    """The resolved plan of one role of a resolved plan, in which it acts alone."""
    alone = plan.model_copy(update={"roles": Roles()})
    if name == POLICY or plan.roles is None:
        return alone
    role, data = plan.roles.of(name), as_mapping(alone)
    kept = {key: value for key, value in data.items() if key not in SECTIONS}
    if name == TEACHER:
        kept["task"] = "sft"
    return Plan.model_validate({**kept, "model": role.model, **{key: getattr(role, key) for key in SECTIONS}})


def settled(role: Role, whole: Plan) -> Role:
    """The role with every key of its own resolved plan, so that `role_plan` reads it back."""
    data = as_mapping(whole)
    return role.model_copy(update={**{key: data.get(key) for key in SECTIONS}, "model": data["model"]})


def sampled(plan: Plan) -> int:
    """Sequences that a plan's policy samples at once."""
    release, stack = plan.stack.versions.get(SAMPLING.package), plan.stack
    if stack.framework != "transformers" or not release or not at_least(release, SAMPLING.since):
        return plan.batch.micro_batch
    return plan.batch.micro_batch * int(stack.options.get(SAMPLING.option) or plan.batch.accumulation)


def scored(plan: Plan, name: str, role: Role) -> Role:
    """The role of a plan: a reward model scores at once what was sampled at once, unless its own batch is said."""
    if name != REWARD or role.forward_batch is not None:
        return role
    return role.model_copy(update={"forward_batch": sampled(plan)})
