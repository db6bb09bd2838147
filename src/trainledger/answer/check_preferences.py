"""What of losses over preferences, and of the reference models that they read, cannot be estimated: each by its key."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.base.problems import Problem
from trainledger.facts.preferences import AGAINST, KERNEL, PAIRED, PREFERENCES, REWARDED, SELECTIVE, TRL
from trainledger.facts.preferences import FUSED as HEAD
from trainledger.ledger.losses import FUSED
from trainledger.ledger.run import trainer_of
from trainledger.model.prompts import PREFIX_KIND, PROMPT_KINDS
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

FULL = ("full-fp32", "full")
REWARDS = ("transformers", "deepspeed", "openrlhf", "torch")  # frameworks that train reward models
# strategies under which a frozen forward has rules
FORWARDS = ("none", "ddp", "zero1", "zero2", "zero3", "fsdp2", "hsdp")


def preference_problems(plan: Plan) -> Iterator[Problem]:
    """Keys of a plan whose task is one over preferences."""
    if plan.task == REWARDED and plan.stack.framework not in REWARDS:
        found = f"found {plan.task!r} on {plan.stack.framework}"
        yield Problem("task", found, f"{', '.join(REWARDS)} can be estimated so far")
    if plan.task not in {*PAIRED, *AGAINST}:
        return
    row = trainer_of(plan)
    if row is None:
        earliest = {one.package: one.since for one in PREFERENCES if one.task == plan.task}  # rows: newest first
        known = ", ".join(_named(package, since) for package, since in earliest.items())
        release = plan.stack.versions.get(TRL)
        found = f"found {plan.task!r} on {plan.stack.framework}" + (f", trl {release}" if release else "")
        fix = "" if release or TRL not in earliest else "Name the trainer's release: stack.versions: {trl: 1.16.0}"
        yield Problem("task", found, f"the trainer of {known} can be estimated so far", fix)
        return
    if row.form == HEAD and plan.stack.loss != FUSED:
        yield Problem("stack.loss", f"found {plan.stack.loss!r}", f"TRL's trainer runs a fused head: {FUSED}")
    if row.form in (SELECTIVE, KERNEL) and plan.stack.loss not in FULL:
        found, allowed = f"found {plan.stack.loss!r}", f"TRL's trainer reads all logits before 1.15: {FULL[0]}"
        yield Problem("stack.loss", found, allowed)
    if not (row.before or row.after):
        return
    if plan.parallel.strategy not in FORWARDS:
        found, known = f"found {plan.parallel.strategy!r} with a reference model", ", ".join(FORWARDS)
        yield Problem("parallel.strategy", found, f"{known} can be estimated so far")
    if degrees(plan).pp > 1:
        yield Problem("parallel.pp", f"found {degrees(plan).pp} with a reference model", "one stage holds both")
    if plan.adapter is not None and plan.adapter.kind in (*PROMPT_KINDS, PREFIX_KIND):
        found = f"found {plan.adapter.kind!r} with a reference model"
        yield Problem("adapter.kind", found, "adapters of weights can be estimated so far")


def _named(package: str, since: str) -> str:
    return f"{package} from {since} on" if since else package
