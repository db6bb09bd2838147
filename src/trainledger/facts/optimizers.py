"""Optimizers by the plan's names: their states, how these are stored, and what one step allocates."""

from __future__ import annotations

from trainledger.facts.optimizer_kinds import Optimizer
from trainledger.facts.optimizers_other import OTHER_ROWS
from trainledger.facts.optimizers_torch import TORCH_ROWS

OPTIMIZERS: dict[str, Optimizer] = {row.name: row for row in (*TORCH_ROWS, *OTHER_ROWS)}
