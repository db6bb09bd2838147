"""Expandable segments beside segments of their own: where one range of addresses takes more of the device."""

from __future__ import annotations

from trainledger.allocator.conf import parse_conf
from trainledger.allocator.simulator import Simulator
from trainledger.base.units import MIB

OUT, CAST, PROBABILITIES, GRADIENT, STATES = range(5)


def loss(simulator: Simulator) -> None:
    """Logits, two tensors of twice their size, and a gradient of that size once the logits are gone."""
    for ident, size in ((OUT, 100), (CAST, 200), (PROBABILITIES, 200)):
        assert simulator.alloc(ident, size * MIB)
    simulator.free(OUT)
    assert simulator.alloc(GRADIENT, 200 * MIB)
    for ident in (CAST, PROBABILITIES, GRADIENT):
        simulator.free(ident)


def reserved(conf: str) -> int:
    """MiB after two such losses, with the optimizer's states made in between."""
    simulator = Simulator(parse_conf(conf))
    loss(simulator)
    assert simulator.alloc(STATES, 100 * MIB)  # where the logits were
    loss(simulator)
    return simulator.reserved // MIB


def test_segments_keep_sizes_apart_that_one_range_lets_run_together() -> None:
    """Logits taken from a segment of 200 MiB leave it whole; in one range they lie ahead of the others, and neither
    their hole nor the end of the range holds the gradient."""
    assert reserved("") == 700
    assert reserved("expandable_segments:True") == 800
