"""What a search is for, one candidate of it, and the plan that a candidate is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.device_rows import Device
from trainledger.facts.devices import find_device
from trainledger.facts.limits import DEGREE
from trainledger.facts.megatron import FRAMEWORKS as MEGATRON
from trainledger.facts.megatron_offload import MODULES, OPTION
from trainledger.facts.pipelines import TITAN_STAGES
from trainledger.facts.search_space import (
    AXES,
    DENSE_POLICIES,
    EXPERT_OPTIONS,
    EXPERT_POLICIES,
    LATENT_POLICIES,
    OFFLOADS,
    SPACES,
    Policy,
    Space,
)
from trainledger.facts.throughput import THROUGHPUT, Throughput
from trainledger.facts.transformer_engine import NAME as ENGINE
from trainledger.model.sizes import Sizes, sizes_of
from trainledger.plan.read import read_plan
from trainledger.plan.resolve import resolve
from trainledger.plan.schema import Plan
from trainledger.plan.stages import FIRST, LAST, LAYOUT, WITH_EMBEDDING, WITH_LOSS

DEGREES = ("tp", "cp", "pp", "vpp", "ep", "etp")
SPLITS = (FIRST, LAST, LAYOUT, WITH_EMBEDDING, WITH_LOSS)
SEARCHED = ("strategy", "world", "dp", "shard", "sp", "schedule", "reshard_after_forward", *DEGREES)


@dataclass(frozen=True, slots=True)
class Goal:
    """The question: a plan's other keys as plain data (`template`, its model's keys in place), how many of which
    device, sequences of a step and tokens of each, and what may change."""

    template: Mapping[str, Any]
    devices: int
    device: Device
    speeds: Throughput
    global_batch: int
    sequence: int
    space: Space
    policies: tuple[Policy, ...]

    @property
    def keys(self) -> Mapping[str, Any]:
        """The model's keys."""
        found: Mapping[str, Any] = self.template["model"]
        return found

    @property
    def framework(self) -> str:
        """The training framework."""
        return str(self.template["stack"]["framework"])

    @property
    def megatron(self) -> bool:
        """Whether Megatron-Core runs the plans."""
        return self.framework in MEGATRON

    @property
    def sizes(self) -> Sizes:
        """What the degrees must divide."""
        return sizes_of(self.keys)


@dataclass(frozen=True, slots=True)
class Candidate:
    """One plan of a search by what it changes. `shard`: ranks that shard (0: all data-parallel ones); `policy`: what
    runs forward twice; `layers`: of a chunk that does, where the policy says some; `layout`: the stages' text, empty
    where they are even."""

    strategy: str
    shard: int
    tp: int
    cp: int
    pp: int
    vpp: int
    ep: int
    etp: int
    micro_batch: int
    policy: Policy
    layers: int = 0
    layout: str = ""

    @property
    def inner(self) -> int:
        """Ranks of one replica of the model."""
        return self.tp * self.cp * self.pp

    def degrees(self) -> dict[str, int]:
        """Every degree and the micro-batch."""
        return {name: getattr(self, name) for name in (*DEGREES, "micro_batch")}


def parse_devices(text: str) -> tuple[int, str]:
    """Count and name of `64xh100-80gb`. Raises InputError."""
    count, _, name = text.strip().partition("x")
    if not count.isdigit() or int(count) < 1 or not name.strip():
        raise InputError([Problem("--devices", f"found {text!r}", "COUNTxDEVICE is needed, such as 64xh100-80gb")])
    if int(count) > DEGREE.value:
        allowed = f"at most {DEGREE.value:,} {DEGREE.unit} are read"
        raise InputError([Problem("--devices", f"found {int(count):,}", allowed)])
    return int(count), name.strip()


def goal_of(template: Mapping[str, Any], devices: str, batch: int | None = None, sequence: int | None = None) -> Goal:
    """The goal of a template. Left out, batch and sequence are the template's, else facts.search_space's own,
    the batch raised to a multiple of the devices.

    Raises InputError for a device that is not known, or whose speed is not, and a framework that is not searched.
    """
    count, name = parse_devices(devices)
    device = find_device(name, "--devices")
    if device.name not in THROUGHPUT:
        known = ", ".join(THROUGHPUT)
        raise InputError([Problem("--devices", f"found {name!r}", f"a device whose speed is known is needed: {known}")])
    framework = str(template.get("stack", {}).get("framework", ""))
    space = space_of(framework)
    given = template.get("batch", {})
    steps = batch or given.get("global") or _batch(template) or _usual(count)
    tokens = sequence or given.get("sequence") or AXES.sequence
    made = Goal(template, count, device, THROUGHPUT[device.name], steps, tokens, space, space.policies)
    return replace(made, template=_cleaned(made), policies=_policies(made))


def space_of(framework: str) -> Space:
    """What is searched under a framework. Raises InputError."""
    for space in SPACES:
        if framework in space.frameworks:
            return space
    known = ", ".join(name for space in SPACES for name in space.frameworks)
    raise InputError([Problem("--framework", f"found {framework!r}", f"one of {known} is searched")])


def _usual(devices: int) -> int:
    """The least multiple of the devices that is no less than the usual batch: any number of them may hold replicas,
    each with as many sequences."""
    return -(-AXES.batch // devices) * devices


def _batch(template: Mapping[str, Any]) -> int:
    """Sequences of a step that a plan's own keys make."""
    given, parallel = template.get("batch", {}), template.get("parallel", {})
    world = parallel.get("world") or parallel.get("dp", 0)
    inner = parallel.get("tp", 1) * parallel.get("cp", 1) * parallel.get("pp", 1) if "world" in parallel else 1
    return int(given.get("micro_batch", 0) * given.get("accumulation", 0) * world // inner)


def _cleaned(goal: Goal) -> dict[str, Any]:
    """The template without what the search sets."""
    data = {name: dict(part) if isinstance(part, Mapping) else part for name, part in goal.template.items()}
    parallel = {name: value for name, value in data.get("parallel", {}).items() if name not in SEARCHED}
    options = {name: value for name, value in parallel.get("options", {}).items() if name not in SPLITS}
    if goal.megatron and goal.sizes.experts:
        options = {**EXPERT_OPTIONS, **options}
    data["parallel"] = {**parallel, "options": options}
    dropped = ("micro_batch", "accumulation", "global", "sequence")
    data["batch"] = {name: value for name, value in data.get("batch", {}).items() if name not in dropped}
    data["stack"] = {name: value for name, value in data["stack"].items() if name != "recompute"}
    return data


def _policies(goal: Goal) -> tuple[Policy, ...]:
    if not goal.megatron:
        return goal.space.policies
    experts, latent = bool(goal.sizes.experts), goal.keys.get("kv_lora_rank") is not None
    more = (*(EXPERT_POLICIES if experts else ()), *(LATENT_POLICIES if latent else ()))
    hosts = () if ENGINE not in goal.template["stack"].get("kernels", ()) else OFFLOADS[experts]
    return (*goal.space.policies, *more, *(() if experts else DENSE_POLICIES), *hosts)


def plain(goal: Goal, one: Candidate) -> dict[str, Any]:
    """A candidate's plan as plain data, as a plan's file has it."""
    parallel: dict[str, Any] = {"strategy": one.strategy, "world": goal.devices, **goal.template["parallel"]}
    parallel |= {name: getattr(one, name) for name in ("tp", "cp", "pp", "vpp", "ep") if getattr(one, name) > 1}
    if one.tp > 1:
        parallel["sp"] = True
    if one.ep > 1 and goal.megatron:
        parallel["etp"] = one.etp
    dp = goal.devices // one.inner
    if one.shard or (goal.framework == TITAN_STAGES.framework and one.cp > 1):  # whose ranks of cp shard, too
        parallel["shard"] = one.shard or dp * one.cp
    if one.layout:
        parallel["options"] = {**parallel["options"], LAYOUT: one.layout}
    batch = {
        **goal.template["batch"], "micro_batch": one.micro_batch, "sequence": goal.sequence,
        "accumulation": goal.global_batch // (dp * one.micro_batch),
    }  # fmt: skip
    recompute = dict(one.policy.recompute)
    if one.layers:
        recompute["num_layers"] = one.layers
    stack = {**goal.template["stack"], "recompute": recompute}
    made = {**goal.template, "parallel": parallel, "batch": batch, "stack": stack, "device": goal.device.name}
    if one.policy.hosted:
        stack["options"] = {**stack.get("options", {}), **hosting(one.policy.hosted)}
        made["offload"] = {**made.get("offload", {}), "activations": "cpu"}
    return made


def hosting(modules: tuple[str, ...]) -> dict[str, Any]:
    """Megatron-Core's options that send these modules' saved tensors to the host; none for none."""
    return {OPTION: True, MODULES: list(modules)} if modules else {}


def plan_of(goal: Goal, one: Candidate) -> Plan:
    """A candidate as a plan, read and resolved as one from a file is. Raises InputError where it is none."""
    return resolve(read_plan(plain(goal, one)))[0]
