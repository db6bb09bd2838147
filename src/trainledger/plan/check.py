"""Checks across keys that need no model: degrees that multiply, batches that agree, keys that exclude each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trainledger.base.demands import nearest_number
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.facts.devices import find_device
from trainledger.facts.names import PACKAGES
from trainledger.facts.optimizer_kinds import Kind
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.facts.sharding import HYBRID
from trainledger.facts.torchtitan import BUDGET
from trainledger.facts.versions import NEWEST, names_version
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan
from trainledger.plan.text import shown

_STATES = {"first": Kind.FIRST, "second": Kind.SECOND, "momentum": Kind.MOMENTUM}
POLICIES = (r"every ([1-9]\d{0,5})(st|nd|rd|th) layer", BUDGET.pattern)  # of selective recompute, beside `op`


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem and every key (dotted) that it was concluded from: with one of them unreadable, it is not reported."""

    problem: Problem
    keys: tuple[str, ...]


def findings(plan: Plan) -> Iterator[Finding]:
    """Every disagreement between keys of a plan whose single keys are valid."""
    yield from _world(plan)
    yield from _global_batch(plan)
    yield from _loss_tokens(plan)
    yield from _shard(plan)
    yield from _pipeline(plan)
    yield from _strategy(plan)
    yield from _recompute(plan)
    yield from _trainable(plan)
    yield from _versions(plan)
    yield from _states(plan)
    yield from _device(plan)


def _device(plan: Plan) -> Iterator[Finding]:
    """A device that is only named is one of those known."""
    given = plan.device
    if given is None or given.name is None or given.memory is not None:
        return
    try:
        find_device(given.name)
    except InputError as error:
        for problem in error.problems:
            yield Finding(problem, ("device", "device.name"))


def _world(plan: Plan) -> Iterator[Finding]:
    parallel, keys = plan.parallel, ("parallel.world", "parallel.dp", "parallel.tp", "parallel.cp", "parallel.pp")
    inner = parallel.tp * parallel.cp * parallel.pp
    axes = f"tp {parallel.tp} x cp {parallel.cp} x pp {parallel.pp}"
    given = parallel.model_fields_set
    if {"world", "dp"} <= given and parallel.world != parallel.dp * inner:
        found = f"world {parallel.world}, but dp {parallel.dp} x {axes} = {parallel.dp * inner}"
        fix = f"Set parallel.world to {parallel.dp * inner}, or leave out world or dp."
        yield Finding(Problem("parallel.world", found, "world is dp x tp x cp x pp", fix), keys)
    elif "world" in given and parallel.world % inner:
        found = f"world {parallel.world} is no multiple of {axes} = {inner}"
        fix = f"The nearest that can is {nearest_number(parallel.world, [lambda ranks: ranks % inner == 0])}."
        yield Finding(Problem("parallel.world", found, "world is dp x tp x cp x pp", fix), keys)
    elif degrees(plan).world % parallel.ep:
        world = degrees(plan).world
        found = f"ep {parallel.ep} does not divide the world of {world} ranks"
        fix = f"The nearest that can is {nearest_number(parallel.ep, [lambda ranks: world % ranks == 0])}."
        problem = Problem("parallel.ep", found, "experts are spread over ranks of the world", fix)
        yield Finding(problem, (*keys, "parallel.ep"))


def _global_batch(plan: Plan) -> Iterator[Finding]:
    batch, dp = plan.batch, degrees(plan).dp
    keys = ("batch.global", "batch.micro_batch", "batch.accumulation", "parallel.world", "parallel.dp")
    if batch.global_batch is None:
        return
    per_step = batch.micro_batch * dp
    if "accumulation" in batch.model_fields_set:
        product = per_step * batch.accumulation
        if product != batch.global_batch:
            found = (
                f"global {batch.global_batch}, but micro_batch {batch.micro_batch} x dp {dp} x "
                f"accumulation {batch.accumulation} = {product}"
            )
            fix = "Leave out batch.accumulation or batch.global, or make them agree."
            yield Finding(Problem("batch.global", found, "batch.global is micro_batch x dp x accumulation", fix), keys)
    elif batch.global_batch % per_step:
        found = f"global {batch.global_batch} is no multiple of micro_batch {batch.micro_batch} x dp {dp} = {per_step}"
        yield Finding(Problem("batch.global", found, "batch.global is micro_batch x dp x accumulation"), keys)


def _loss_tokens(plan: Plan) -> Iterator[Finding]:
    tokens = plan.batch.loss_tokens
    if tokens is not None and tokens > plan.batch.sequence:
        found = f"{tokens} of a sequence of {plan.batch.sequence} tokens"
        allowed = "at most every token of a sequence counts in the loss"
        yield Finding(Problem("batch.loss_tokens", found, allowed), ("batch.loss_tokens", "batch.sequence"))


def _shard(plan: Plan) -> Iterator[Finding]:
    parallel, ranks = plan.parallel, degrees(plan)
    keys = ("parallel.shard", "parallel.dp", "parallel.cp", "parallel.world", "parallel.strategy")
    if parallel.shard is not None and (ranks.dp * ranks.cp) % parallel.shard:
        found = f"shard {parallel.shard} does not divide dp {ranks.dp} x cp {ranks.cp}"
        yield Finding(Problem("parallel.shard", found, "the strategy shards over a part of these ranks"), keys)
    hybrid = parallel.strategy == "fsdp1" and str(parallel.options.get("sharding_strategy")).upper() in HYBRID
    if (parallel.strategy == "hsdp" or hybrid) and parallel.shard is None:
        allowed = f"{HYBRID[0] if hybrid else 'hsdp'} shards over some ranks and replicates over the others"
        yield Finding(Problem("parallel.shard", "missing", allowed, f"Set it to a divisor of dp {ranks.dp}."), keys)


def _pipeline(plan: Plan) -> Iterator[Finding]:
    parallel, keys = plan.parallel, ("parallel.pp", "parallel.vpp", "parallel.schedule")
    if parallel.pp == 1 and parallel.vpp > 1:
        found = f"vpp {parallel.vpp} without a pipeline"
        yield Finding(Problem("parallel.vpp", found, "several model chunks per rank need parallel.pp above 1"), keys)
    if parallel.pp == 1 and parallel.schedule is not None:
        found = f"{parallel.schedule} without a pipeline"
        yield Finding(Problem("parallel.schedule", found, "a schedule needs parallel.pp above 1"), keys)


def _strategy(plan: Plan) -> Iterator[Finding]:
    dp = degrees(plan).dp
    if plan.parallel.strategy == "none" and "strategy" in plan.parallel.model_fields_set and dp > 1:
        fix = "Name the strategy (ddp, fsdp2, zero2, ...), or leave it out for the framework's default."
        problem = Problem(
            "parallel.strategy", f"none with {dp} data-parallel ranks", "none is for one data-parallel rank", fix
        )
        yield Finding(
            problem, ("parallel.strategy", "parallel.dp", "parallel.world", "parallel.tp", "parallel.cp", "parallel.pp")
        )


def _recompute(plan: Plan) -> Iterator[Finding]:
    policy, keys = plan.stack.recompute.policy, ("stack.recompute",)
    if policy not in (None, "op") and not any(re.fullmatch(one, str(policy)) for one in POLICIES):
        allowed = "allowed is op, every 2nd layer, every 3rd layer, ..., or memory budget 0.5"
        problem = Problem("stack.recompute.policy", shown(policy), allowed)
        yield Finding(problem, keys)
    kind = plan.stack.recompute.kind
    for name in sorted(plan.stack.recompute.model_fields_set - {"kind"}):
        if kind == "none" and getattr(plan.stack.recompute, name) is not None:
            problem = Problem(
                f"stack.recompute.{name}", "set, but the kind is none", "nothing is recomputed with kind none"
            )
            yield Finding(problem, keys)


def _trainable(plan: Plan) -> Iterator[Finding]:
    if plan.adapter is not None and "trainable" in plan.model_fields_set and plan.trainable != "none":
        fix = "Name the modules that are trained besides the adapter in adapter.train_extra."
        yield Finding(
            Problem("trainable", "given beside an adapter", "an adapter freezes the base model", fix),
            ("trainable", "adapter"),
        )


def _versions(plan: Plan) -> Iterator[Finding]:
    """A name near a known package is a typo; an unrelated one is a package that moves no memory here. A text that names
    no version would count as the newest."""
    for name, text in plan.stack.versions.items():
        if name in PACKAGES.names and not names_version(name, text):
            newest = NEWEST[name].version if name in NEWEST else "1.2.0"
            fix = f"Write for example {newest}, or leave it out for the newest known."
            allowed = "a release, a day, a commit or a branch is needed"
            path = f"stack.versions.{name}"
            yield Finding(Problem(path, f"found {shown(text)}", allowed, fix), (path,))
        near = nearest(name, PACKAGES.names)
        if name not in PACKAGES.names and near and _close(name, near):
            problem = Problem(
                f"stack.versions.{name}", "unknown package", f"packages known are like {near}", f"Did you mean {near}?"
            )
            yield Finding(problem, (f"stack.versions.{name}",))


def _states(plan: Plan) -> Iterator[Finding]:
    """A dtype is given only for a state that the optimizer keeps."""
    row = OPTIMIZERS.get(plan.optimizer.name)
    kept = [name for name, kind in _STATES.items() if row and any(state.kind is kind for state in row.states)]
    for name in plan.optimizer.states:
        if row is not None and name not in kept:
            allowed = f"states of {plan.optimizer.name} that may be named: {', '.join(kept) or 'none'}"
            yield Finding(Problem(f"optimizer.states.{name}", "not a state of this optimizer", allowed), ("optimizer",))


def _close(name: str, near: str) -> bool:
    """Whether two names differ by letters within, not by a word more: `transfomers` is a typo, `torchrec` is not."""
    return abs(len(name) - len(near)) <= 1 and sorted(set(name) ^ set(near)) in (
        [],
        *([letter] for letter in name + near),
    )
