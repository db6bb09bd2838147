"""Activations that TRL's SFT offloads to the host: counted of recomputed layers on one device, noted elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainledger.facts.import_hf_filled import SFT

if TYPE_CHECKING:
    from trainledger.importers.hf_settle import Joined

ARGUMENT = "activation_offloading"
OFFLOADS = f"run.{ARGUMENT}"  # the fact that the argument is on
PLACE, OPTION = "offload.activations", f"stack.options.{ARGUMENT}"


def activations(joined: Joined) -> None:
    """Say the place where it can be estimated, and else the option, which a note follows."""
    if joined.fact(OFFLOADS) is not True:
        return
    plain = joined.value("stack.recompute.kind") == "full" and joined.value("parallel.strategy") in (None, "none")
    kernels = joined.value("stack.kernels") or joined.value("stack.compile") or joined.value("quantization.kind")
    counted = joined.trl and joined.value("task") == SFT and plain and not kernels
    joined.piece.give(PLACE if counted else OPTION, "cpu" if counted else True, joined.where(OFFLOADS))
