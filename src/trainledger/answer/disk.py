"""What a run writes to disk, and what its optimizer keeps outside the device's allocator."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.answer.budgets import Budgets, budgets_of
from trainledger.answer.estimate import Estimate, device_of
from trainledger.answer.saved_sizes import dtype_of
from trainledger.answer.tables import host_lines
from trainledger.facts.dtypes import DTYPES
from trainledger.facts.optimizer_bytes import shared_tensors, state_bytes
from trainledger.facts.optimizer_kinds import Kind
from trainledger.ledger.rank import trained_of, updates_of
from trainledger.model.counts import kinds


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """Bytes besides the device's allocator. A checkpoint leaves metadata out, and no tensor in it is rounded.

    `weights_only`: what inference reads. `checkpoint`: what resuming needs: weights, master weights, optimizer states.
    `paged`: a rank's optimizer states in managed memory, on the device or on the host. `host`: what a rank keeps on
    the host, those included.
    """

    weights_only: int
    checkpoint: int
    paged: int
    host: int


def elsewhere(answer: Estimate) -> Elsewhere:
    """What the whole model's checkpoint takes, and what lies in the host's memory."""
    plan, model = answer.plan, answer.model
    trained, updates = trained_of(plan), updates_of(plan)
    master = DTYPES[plan.precision.master] if plan.precision.master else None
    weights = states = 0
    for weight, count in kinds(model):
        own = dtype_of(plan, weight)
        if plan.adapter is None or trained(weight):  # of an adapter's run only what it trains is saved
            weights += own.bytes_of(weight.elements) * count
        if not trained(weight):
            continue
        if master is not None and master != own:
            states += master.bytes_of(weight.elements) * count
        for state in state_bytes(updates.row, weight.shape, master or own, updates.options(weight)):
            states += state.bytes * count if state.kind is not Kind.STEP else 0
    if states:
        states += sum(table.bytes for table in shared_tensors(updates.row))
    paged = answer.ledger.paged
    return Elsewhere(weights, weights + states, paged, host_lines(answer.ledger) + paged)


def beside(answer: Estimate) -> Budgets:
    """Every budget besides the device's own memory, with the host's moments and the checkpoint."""
    where = (device_of(answer.plan), answer.parameters.trainable)
    return budgets_of(answer.plan, answer.model, answer.ledger, where)
