"""What a run writes to disk, and what its optimizer keeps outside the device's allocator."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.answer.budgets import Budgets, budgets_of
from trainledger.answer.checkpoint import Checkpoint, checkpoint
from trainledger.answer.estimate import Estimate, device_of
from trainledger.answer.tables import host_lines


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Bytes besides the device's allocator. A checkpoint leaves metadata out, and no tensor in it is rounded.

    `weights_only`: what inference reads. `checkpoint`: all files of one, in the plan's format.
    `paged`: a rank's optimizer states in managed memory, on the device or on the host. `host`: what a rank keeps on
    the host, those included.
    """

    weights_only: int
    checkpoint: int
    paged: int
    host: int


def elsewhere(answer: Estimate, written: Checkpoint | None = None) -> Elsewhere:
    """What a checkpoint takes (`written`, where it was worked out already), and what lies in the host's memory."""
    plan, model, ledger = answer.plan, answer.model, answer.ledger
    written = written or checkpoint(plan, model, ledger)
    return Elsewhere(written.weights_only, written.total, ledger.paged, host_lines(ledger) + ledger.paged)


def beside(answer: Estimate) -> Budgets:
    """Every budget besides the device's own memory, with the host's moments and the checkpoint."""
    where = (device_of(answer.plan), answer.parameters.trainable)
    return budgets_of(answer.plan, answer.model, answer.ledger, where)
