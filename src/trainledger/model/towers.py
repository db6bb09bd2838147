"""How many parameters the layers of a vision tower have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainledger.facts.towers import TOWERS

RATIO = "ratio"


def layers_of(config: Mapping[str, Any]) -> int:
    """Parameters in the matrices of a tower's layers, from its config's keys; 0 where its type is not known or a key is
    no number. The whole has more: norms, biases, patches, positions, a projector."""
    row = TOWERS.get(str(config.get("model_type")))
    if row is None:
        return 0
    sizes = [config.get(name, default) for name, default in (row.hidden, row.layers, row.width)]
    if any(isinstance(size, bool) or not isinstance(size, int | float) or size <= 0 for size in sizes):
        return 0
    hidden, layers, width = sizes
    inner = int(hidden * width) if row.width[0].endswith(RATIO) else int(width)
    return int(layers * (row.attention * hidden * hidden + row.matrices * hidden * inner))
