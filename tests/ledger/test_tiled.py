"""MLPs that run in tiles of the sequence: what lives in them, forward and backward."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.ledger.tiled import _sizes

HIDDEN, INNER = LLAMA["hidden_size"], LLAMA["intermediate_size"]


def found(tokens: int, tiled: bool, recompute: str = "full") -> Estimate:
    parallel: dict[str, Any] = {"strategy": "zero3", "dp": 4, "options": {"tiled_mlp": tiled}}
    stack = {
        "framework": "deepspeed", "versions": {"transformers": "4.51.3"}, "recompute": recompute, "attention": "flash",
    }  # fmt: skip
    return estimate(plan_of(LLAMA, parallel=parallel, batch={"sequence": tokens}, stack=stack))


def units(answer: Estimate) -> dict[str, int]:
    return {line.name.partition("*.")[-1]: line.unit for line in answer.ledger.lines}


@pytest.mark.parametrize(
    ("sequence", "tokens", "sizes"),
    [
        (1000, 256, [250] * 4),
        (1001, 256, [251] * 3 + [248]),
        (100, 256, [100]),
        (256, 256, [256]),
        (257, 256, [129, 128]),
    ],
)
def test_tiles_are_alike_but_the_last(sequence: int, tokens: int, sizes: list[int]) -> None:
    assert list(_sizes(sequence, tokens)) == sizes
    assert sum(sizes) == sequence


def test_no_tensor_of_the_inner_width_is_longer_than_a_tile() -> None:
    tiles = 8
    lines = units(found(HIDDEN * tiles, tiled=True))
    inner = [size for name, size in lines.items() if name.startswith("mlp") and "tile: gate" in name]
    assert inner == [HIDDEN * INNER * 2] * len(inner)
    assert inner


def test_results_of_all_tiles_live_beside_their_concatenation() -> None:
    tiles = 8
    lines = units(found(HIDDEN * tiles, tiled=True))
    assert lines["mlp.down_proj: results of all tiles"] == HIDDEN * HIDDEN * tiles * 2
    parts = [
        size for name, size in lines.items() if name.startswith("mlp.down_proj: tile: result") and "again" not in name
    ]
    assert len(parts) == tiles
    assert sum(parts) == lines["mlp.down_proj: results of all tiles"]


def test_a_long_sequence_peaks_lower_in_tiles() -> None:
    assert (
        found(HIDDEN * 16, tiled=True).peak.allocated.expected < found(HIDDEN * 16, tiled=False).peak.allocated.expected
    )


def test_gradients_of_the_weights_are_whole_from_the_first_tile_on() -> None:
    lines = units(found(HIDDEN * 4, tiled=True))
    again = [size for name, size in lines.items() if name == "mlp.down_proj: tile: gradient of a weight"]
    assert again == [HIDDEN * INNER * 2]


def test_what_is_born_dies() -> None:
    """Nothing of a tile outlives the step."""
    ledger = found(HIDDEN * 5, tiled=True).ledger
    alive: dict[str, int] = {}
    for _, events, repeat, _ in ledger.segments:
        for event in events:
            name = ledger.lines[abs(event) - 1].name
            alive[name] = alive.get(name, 0) + (repeat if event > 0 else -repeat)
    assert not {name: count for name, count in alive.items() if "tile" in name and count}
