"""Noise on the word embedding's rows (NEFTune): what it adds to the run's largest instants.

A small Llama under the Trainer's own forward on a CPU (Transformers 5.24.0, PEFT 0.21.2): with adapters the rows
themselves stay beside what the noise was added to, with all weights trained nothing at the largest instants moves.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.ledger.rank import Ledger

LORA = {"kind": "lora", "r": 8, "targets": ["q_proj", "v_proj"], "dtype": "fp32"}
ROWS = 2 * 96 * 256 * 2  # of two sequences, in 16 bits


def ledger(noise: float, **more: Any) -> Ledger:
    return estimate(
        plan_of(
            task="sft",
            batch={"micro_batch": 2, "sequence": 96},
            stack={
                "versions": {"torch": "2.13.0", "transformers": "5.24.0", "accelerate": "1.15.0", "peft": "0.21.2"},
                "recompute": {"kind": "full", "reentrant": False},
                "options": {"neftune_noise_alpha": noise},
                **more.pop("stack", {}),
            },
            **more,
        )
    ).ledger


def peaks(made: Ledger) -> dict[str, int]:
    return {
        one.name: one.allocated for one in made.moments if one.name in ("step 2: loss", "step 2: backward of the loss")
    }


@pytest.mark.parametrize(("more", "rows"), [({}, 0), ({"adapter": LORA}, ROWS)])
def test_rows_stay_where_they_are_made_to_need_a_gradient(more: dict[str, Any], rows: int) -> None:
    plain, noisy = ledger(0, **more), ledger(5, **more)
    before, after = peaks(plain), peaks(noisy)
    assert {name: after[name] - size for name, size in before.items()} == dict.fromkeys(before, rows)
    assert next(line.unit for line in noisy.lines if "noise" in line.name) == ROWS
    assert not any("noise" in line.name for line in plain.lines)


def test_no_noise_is_added_out_of_training() -> None:
    made = ledger(5, evaluation={"micro_batch": 4})
    assert {line.unit for line in made.lines if "noise" in line.name} == {ROWS}


def test_other_frameworks_have_no_such_option() -> None:
    made = ledger(5, stack={"framework": "torch"})
    assert not any("noise" in line.name for line in made.lines)
