"""Filling in what a plan leaves out: the framework's default of every key, each with the version that has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

from trainledger.base.sources import Source
from trainledger.facts.default_row import Absent, DefaultRow, Follows, Given, Of
from trainledger.facts.default_words import FORMAT
from trainledger.facts.defaults import DEFAULTS
from trainledger.facts.names import CHECKPOINT_DTYPES
from trainledger.facts.phases import POLICY
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan_days import NIGHTLIES, dated_torch, day_of, last_day
from trainledger.facts.versions import at_least
from trainledger.plan.acting import Role
from trainledger.plan.degrees import accumulation, degrees
from trainledger.plan.megatron_keys import megatron_keys
from trainledger.plan.names import Reduced
from trainledger.plan.roles import overlaid, settled
from trainledger.plan.schema import Plan, as_mapping

WIDE = ("precision.gradients", "precision.reduce")
REDUCED = get_args(Reduced)
_MISSING = object()


@dataclass(frozen=True, slots=True)
class Default:
    """A key that the plan left out: the value it got, why, and the source that says so."""

    path: str
    value: object
    why: str
    source: Source


def resolve(plan: Plan) -> tuple[Plan, tuple[Default, ...]]:
    """The plan with every key set that its parts have a default for, and what was filled in, in order.

    Keys without a default (such as `adapter.targets`) stay left out. The degrees are derived from each other.
    """
    given = plan
    plan, filled = _as_megatron(plan)
    data = as_mapping(plan)
    filled += _derived(plan, data)
    for row in DEFAULTS:
        section = row.path.rpartition(".")[0]
        if _get(data, row.path) is not _MISSING or (
            section in ("adapter", "quantization") and _get(data, section) in (_MISSING, None)
        ):
            continue
        if _applies(row, data):
            value = _value(row, data)
            if value is not _MISSING:
                _set(data, row.path, value)
                filled.append(Default(row.path, value, _why(row, data), row.source))
    return _with_roles(given, Plan.model_validate(data)), tuple(filled)


def _with_roles(given: Plan, resolved: Plan) -> Plan:
    """The resolved plan, each of whose roles has every key of its own plan, resolved in turn."""
    roles = resolved.roles
    if roles is None:
        return resolved
    data, found = as_mapping(given.model_copy(update={"roles": roles})), dict[str, Role]()
    for name, role in roles.given():
        if name != POLICY:
            alone = {**overlaid(data, name), "roles": {}}  # whose own plan has nobody beside it
            found[name] = settled(role, resolve(Plan.model_validate(alone))[0])
    return resolved.model_copy(update={"roles": roles.model_copy(update=found)})


def _as_megatron(plan: Plan) -> tuple[Plan, list[Default]]:
    """The plan with its model's keys as Megatron-Core's where that runs it, its arguments' defaults among them."""
    keys, found = megatron_keys(plan)
    if not found:
        return plan, []
    filled = [Default(f"model.{one.key}", one.value, one.why, one.source) for one in found]
    return plan.model_copy(update={"model": keys}), filled


def _derived(plan: Plan, data: dict[str, Any]) -> list[Default]:
    ranks, found = degrees(plan), []
    for name in ("tp", "cp", "pp"):
        if name not in plan.parallel.model_fields_set:
            found.append(Default(f"parallel.{name}", 1, "an axis that is left out has one rank", FORMAT))
    if "dp" not in plan.parallel.model_fields_set:
        found.append(Default("parallel.dp", ranks.dp, "world / (tp x cp x pp)", FORMAT))
    if "world" not in plan.parallel.model_fields_set:
        found.append(Default("parallel.world", ranks.world, "dp x tp x cp x pp", FORMAT))
    if plan.batch.global_batch is not None and "accumulation" not in plan.batch.model_fields_set:
        found.append(Default("batch.accumulation", accumulation(plan), "global / (micro_batch x dp)", FORMAT))
    dated = dated_torch(plan.stack.versions.get("torch", ""))
    if dated:
        why = f"what PyTorch's main branch was on the day of {plan.stack.versions['torch']}"
        found.append(Default("stack.versions.torch", dated, why, NIGHTLIES[0].source))
    found += _bounded(plan)
    for default in found:
        _set(data, default.path, default.value)
    return found


def _bounded(plan: Plan) -> list[Default]:
    """torchtitan of the last day that a build of PyTorch's main branch can be of, where the plan names a later one."""
    version, build = (plan.stack.versions.get(name, "") for name in (TORCHTITAN, "torch"))
    last = last_day(build)
    if not (version and last and day_of(version) > last):
        return []
    why = f"{version} came after PyTorch's main branch had left {build}"
    return [Default(f"stack.versions.{TORCHTITAN}", last, why, NIGHTLIES[0].source)]


def _applies(row: DefaultRow, data: dict[str, Any]) -> bool:
    for path, allowed in row.when:
        value = _look(data, path)
        if isinstance(allowed, Absent):
            if value is not _MISSING:
                return False
        elif isinstance(allowed, Given):
            if value is _MISSING or value is None:
                return False
        elif value not in allowed:
            return False
    versions = data.get("stack", {}).get("versions", {})
    return all(at_least(versions.get(package), since) for package, since in row.since)


def _value(row: DefaultRow, data: dict[str, Any]) -> object:
    if isinstance(row.value, Follows):
        found = _look(data, row.value.path)
        return _MISSING if row.path in WIDE and found not in REDUCED else found  # gradients have 16 bits or more
    if isinstance(row.value, Of):
        found = row.value.rule(str(_look(data, row.value.path)))
        return _MISSING if found is None else found
    return dict(row.value) if isinstance(row.value, dict) else row.value


def _why(row: DefaultRow, data: dict[str, Any]) -> str:
    versions = data.get("stack", {}).get("versions", {})
    named = ", ".join(f"{package} {versions[package]}" for package, _ in row.since if package in versions)
    return f"{row.why} ({named})" if named else row.why


def _look(data: dict[str, Any], path: str) -> object:
    """The value of a key, or of what a condition may ask besides: `model.dtype`, the checkpoint's dtype."""
    if path == "model.dtype":
        keys = data.get("model")
        given = keys.get("dtype", keys.get("torch_dtype")) if isinstance(keys, dict) else None
        return CHECKPOINT_DTYPES.get(given.removeprefix("torch.")) if isinstance(given, str) else None
    return _get(data, path)


def _get(data: dict[str, Any], path: str) -> object:
    part: Any = data
    for key in path.split("."):
        if not isinstance(part, dict) or key not in part:
            return _MISSING
        part = part[key]
    return part


def _set(data: dict[str, Any], path: str, value: object) -> None:
    *outer, last = path.split(".")
    part = data
    for key in outer:
        part = part.setdefault(key, {})
    part[last] = value
