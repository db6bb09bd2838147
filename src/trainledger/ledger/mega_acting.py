"""A role's forward without gradients under Megatron-Core: log-probabilities, values or rewards of one rank's stage.

Source: the rows in facts/phases.py.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainledger.facts.phases import SCORES
from trainledger.ledger.book import Book
from trainledger.ledger.mega_buffers import weights_of
from trainledger.ledger.mega_forward import evaluating, forwards, rounds
from trainledger.ledger.mega_once import once
from trainledger.ledger.mega_run import Rank
from trainledger.ledger.mega_scores import WITH_ENTROPY
from trainledger.ledger.mega_states import pattern
from trainledger.ledger.megatron import job_of, rank_of
from trainledger.ledger.reference import Named
from trainledger.ledger.scoring import Scoring
from trainledger.ledger.updates import Runs, births
from trainledger.lines.line import Account, Line
from trainledger.lines.stream import Segment
from trainledger.model.program import Model
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Silent:
    """A role that is run and not trained: its lines; how its weights come to be; its forward, and what that leaves
    named."""

    lines: tuple[Line, ...]
    weights: Runs
    forward: tuple[Segment, ...]
    named: tuple[int, ...] = ()


class How(NamedTuple):
    """How a role runs: its name; the word with which its lines' names begin; sequences of one forward (None:
    training's); whether it makes the entropy too; whether it is `apart`, so that no other role of its process has made
    what all share."""

    role: str
    word: str
    batch: int | None = None
    entropy: bool = False
    apart: bool = False


def run_alone(plan: Plan, model: Model, on: tuple[str, int], how: How) -> Silent:
    """A role's plan and model on an architecture, and a stage of its pipeline."""
    architecture, stage = on
    base = Book()
    job = replace(job_of(plan, model, architecture), book=Named(base, how.role, how.word))
    rank = evaluating(rank_of(plan, model, job, stage), how.batch, None)
    if how.entropy:
        job = replace(rank.job, run=replace(rank.job.run, scoring=Scoring(WITH_ENTROPY)))
        rank = replace(rank, job=job)
    edges, passes = forwards(rank, lambda _, made, chunk: made)
    made = once(rank)
    inputs = [one for one in made if base.lines[one[0]].account is Account.INPUTS]
    ahead = tuple(line + 1 for line, copies in inputs for _ in range(copies))
    forward = (
        Segment("", ahead),
        *rounds(rank.chunks, edges, passes, len(passes) + 1),
        Segment("", tuple(-event for event in ahead)),
    )
    shared = [one for one in made if one not in inputs] if how.apart else []
    weights = births([*_held(rank), *shared])
    return Silent(tuple(base.lines), weights, tuple(one for one in forward if one.events))


def _held(rank: Rank) -> list[tuple[int, int]]:
    """Weights as they are built, without buffers: a model that is run alone is not wrapped."""
    counts = Counter[int]()
    for chunk in rank.chunks:
        for prefix, _, weight in weights_of(rank, chunk):
            dtype = weight.dtype or rank.job.run.setting.weights
            name = pattern(prefix + weight.name)
            counts[rank.job.book.tensor(Account.WEIGHTS, name, weight.dims, dtype, SCORES)] += 1
    return list(counts.items())
