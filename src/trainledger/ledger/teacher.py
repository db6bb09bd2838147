"""A teacher beside the student that it is distilled into: its weights, and its forward within each micro-batch.

Its logits are the loss's, which lives through the backward; the rest of its forward is counted before the student's.
Source: the row in facts/preferences.py.
"""

from __future__ import annotations

from dataclasses import replace

from trainledger.facts.phases import TEACHER
from trainledger.ledger.opening import Job
from trainledger.ledger.reference import Reference, laid_out, one_pass, silent, standing
from trainledger.ledger.run import run_of
from trainledger.ledger.scoring import LOGITS, Scoring
from trainledger.ledger.step import Updates
from trainledger.model.build import model_of
from trainledger.plan.roles import role_plan
from trainledger.plan.schema import Plan


def teacher_of(plan: Plan, job: Job, updates: Updates, rank: int | None) -> Reference:
    """The teacher of a plan of distillation on one rank."""
    own = role_plan(plan, TEACHER)
    run = replace(run_of(own, job.run.setting.architecture), scoring=Scoring(LOGITS))
    base = Job(job.book, model_of(own), run, lambda weight: False)
    layout = laid_out(own, silent(base, base.model, TEACHER), updates, rank)
    made = one_pass(layout, False)
    return Reference(standing(layout), (), made.segments, (), (), made.products)
