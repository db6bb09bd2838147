"""Seconds of collectives over groups of ranks: inside a node by its links, across nodes by the devices' adapters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trainledger.answer.search_space import Floats
from trainledger.facts.roofline import LAUNCH, LINKS
from trainledger.facts.throughput import Throughput


@dataclass(frozen=True, slots=True)
class Links:
    """What devices reach each other by."""

    speeds: Throughput

    @property
    def inside(self) -> float:
        """Bytes per second of a device to its node's other ones."""
        return self.speeds.link * LINKS.value

    @property
    def outside(self) -> float:
        """Bytes per second of a device to other nodes."""
        return self.speeds.network * LINKS.value

    def neighbours(self, stride: Floats, size: Floats) -> Floats:
        """How many of a group's ranks lie in one node; ranks of the group are `stride` apart."""
        found: Floats = np.clip(self.speeds.domain // np.maximum(stride, 1), 1, size)
        return found

    def rate(self, stride: Floats, size: Floats) -> Floats:
        """Bytes per second at which a rank's part of a ring gather runs. Across nodes the adapters of a node's ranks
        work together."""
        near = self.neighbours(stride, size)
        found: Floats = np.where(near >= size, self.inside, np.minimum(self.inside, near * self.outside))
        return found

    def between(self, stride: Floats, size: Floats) -> Floats:
        """Bytes per second from a rank to the next of its group."""
        found: Floats = np.where(stride * size <= self.speeds.domain, self.inside, self.outside)
        return found

    def gather(self, size: Floats, ranks: Floats, stride: Floats, calls: float = 1) -> Floats:
        """Seconds of gathers or scatters of `size` bytes (whole, all `calls` together) over a group's ranks."""
        share = (ranks - 1) / np.maximum(ranks, 1)
        seconds = size * share / self.rate(stride, ranks) + calls * LAUNCH.value
        found: Floats = np.where(ranks > 1, seconds, 0.0)
        return found

    def exchange(self, size: Floats, ranks: Floats, stride: Floats, calls: float = 1) -> Floats:
        """Seconds in which every rank sends `size` bytes evenly to a group's ranks: within the node and beyond at
        once."""
        near = self.neighbours(stride, ranks)
        far = size * (ranks - near) / np.maximum(ranks, 1) / self.outside
        close = size * (near - 1) / np.maximum(ranks, 1) / self.inside
        found: Floats = np.where(ranks > 1, np.maximum(far, close) + calls * LAUNCH.value, 0.0)
        return found
