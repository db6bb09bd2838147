"""What of losses over preferences, and of the reference models that they read, cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.losses import TOKEN_LOSS
from trainledger.facts.preference_row import FUSED as HEAD
from trainledger.facts.preference_row import READ, TRL, Preference
from trainledger.facts.preferences import AGAINST, PAIRED, PREFERENCES, REWARDED, SAMPLED, prepared_of
from trainledger.facts.sharding import FIRST
from trainledger.facts.versions import at_least
from trainledger.ledger.losses import FUSED
from trainledger.ledger.scoring import trainer_of
from trainledger.ledger.strategy import fsdp_of
from trainledger.model.prompts import PREFIX_KIND, PROMPT_KINDS
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

FULL = ("full-fp32", "full")
REWARDS = ("transformers", "deepspeed", "openrlhf", "torch")  # frameworks that train reward models
# strategies under which a frozen forward has rules
FORWARDS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp1", "fsdp1-noshard", "fsdp2", "hsdp")


def preference_problems(plan: Plan) -> Iterator[Problem]:
    """Keys of a plan whose task is one over preferences."""
    if plan.task == REWARDED and plan.stack.framework not in REWARDS:
        found = f"found {plan.task!r} on {plan.stack.framework}"
        yield Problem("task", found, f"{', '.join(REWARDS)} can be estimated so far")
    row = trainer_of(plan)
    if plan.task == SAMPLED:
        yield from _sampled(plan, row)
    if plan.task not in {*PAIRED, *AGAINST}:
        return
    if row is None:
        earliest = {one.package: one.since for one in PREFERENCES if one.task == plan.task}  # rows: newest first
        known = ", ".join(_named(package, since) for package, since in earliest.items())
        release = plan.stack.versions.get(TRL)
        found = f"found {plan.task!r} on {plan.stack.framework}" + (f", trl {release}" if release else "")
        fix = "" if release or TRL not in earliest else "Name the trainer's release: stack.versions: {trl: 1.16.0}"
        yield Problem("task", found, f"the trainer of {known} can be estimated so far", fix)
        return
    yield from _losses(plan, row)
    if not (row.before or row.after):
        return
    if plan.parallel.strategy not in FORWARDS:
        found, known = f"found {plan.parallel.strategy!r} with a reference model", ", ".join(FORWARDS)
        yield Problem("parallel.strategy", found, f"{known} can be estimated so far")
    yield from _prepared(plan, row)
    if degrees(plan).pp > 1:
        yield Problem("parallel.pp", f"found {degrees(plan).pp} with a reference model", "one stage holds both")
    if plan.adapter is not None and plan.adapter.kind in (*PROMPT_KINDS, PREFIX_KIND):
        found = f"found {plan.adapter.kind!r} with a reference model"
        yield Problem("adapter.kind", found, "adapters of weights can be estimated so far")


def _sampled(plan: Plan, row: Preference | None) -> Iterator[Problem]:
    """What of TRL's trainer over sampled sequences has no rules: releases whose loss function samples too and runs the
    reference beside the policy's graph, and Liger's loss."""
    release = plan.stack.versions.get(TRL)
    if row is not None:
        yield from _losses(plan, row)
    elif release and plan.stack.framework not in TOKEN_LOSS.frameworks:
        earliest = next(one.since for one in reversed(PREFERENCES) if (one.package, one.task) == (TRL, SAMPLED))
        found, allowed = f"found {plan.task!r}, trl {release}", f"trl from {earliest} on can be estimated so far"
        yield Problem("task", found, allowed, f"stack.versions: {{trl: '{earliest}'}} is the closest.")


def _losses(plan: Plan, row: Preference) -> Iterator[Problem]:
    """A loss that this trainer does not make."""
    found = f"found {plan.stack.loss!r}"
    if row.form == HEAD and plan.stack.loss != FUSED:
        yield Problem("stack.loss", found, f"TRL's trainer runs a fused head: {FUSED}")
    if row.form == READ and plan.stack.loss not in FULL:
        liger = "; Liger's loss over sampled sequences has no rules" if plan.task == SAMPLED else ""
        yield Problem("stack.loss", found, f"this release of TRL's trainer reads all logits: {FULL[0]}{liger}")


def _prepared(plan: Plan, row: Preference) -> Iterator[Problem]:
    """A reference model of its own that the trainer leaves out of FSDP, and so on the host."""
    prepared, kind = prepared_of(row), fsdp_of(plan)
    if prepared is None or not kind or plan.adapter is not None:
        return
    since, release = prepared.first if kind == FIRST else prepared.second, plan.stack.versions.get(row.package)
    if not at_least(release, since):
        found = f"found {plan.parallel.strategy!r} with a reference model, {row.package} {release}"
        yield Problem("parallel.strategy", found, f"{row.package} wraps it under FSDP{kind} from {since} on")


def _named(package: str, since: str) -> str:
    return f"{package} from {since} on" if since else package
