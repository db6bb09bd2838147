"""The longest sample against the others: what a run that fits for thousands of steps asks for once."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.answer.bands import Band
from trainledger.answer.estimate import Estimate, estimate
from trainledger.answer.verdict import Outcome
from trainledger.plan.lengths import alone, lengths_of
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class AtLength:
    """The estimate of samples of one length: rows and tokens of a micro-batch, the peak, what the device shows."""

    name: str
    tokens: int
    rows: int
    row_tokens: int
    moment: str
    allocated: Band
    device: Band
    outcome: Outcome | None


def at_lengths(plan: Plan) -> tuple[AtLength, ...]:
    """One estimate for each length that the plan says, shortest first; none where rows are packed."""
    given = plan.lengths
    if given is None or given.packing == "packed":
        return ()
    return tuple(_at(name, tokens, plan) for name, tokens in lengths_of(plan).items())


def _at(name: str, tokens: int, plan: Plan) -> AtLength:
    own = alone(plan, tokens)
    found: Estimate = estimate(own)
    peak, batch = found.peak, own.batch
    return AtLength(
        name,
        tokens,
        batch.micro_batch,
        batch.sequence,
        peak.moment,
        peak.allocated,
        found.device,
        found.verdict.outcome,
    )
