"""What is made before the blocks: rotary tables and numbers of positions, family by family."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.base.dims import elements
from trainledger.facts.dtypes import FP32
from trainledger.ledger.edges import POSITIONS, position_ids, rotary_tables
from trainledger.ledger.frame import Frame
from trainledger.ledger.run import run_of
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.model.build import build

BATCH, SEQUENCE = 3, 128
BERT: dict[str, Any] = {
    "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512,
}  # fmt: skip
OPT: dict[str, Any] = {
    "model_type": "opt", "hidden_size": 64, "ffn_dim": 160, "num_hidden_layers": 2, "num_attention_heads": 4,
    "vocab_size": 512,
}  # fmt: skip


def made(config: dict[str, Any], **options: Any) -> Frame:
    plan = plan_of(config, batch={"micro_batch": BATCH, "sequence": SEQUENCE}, stack={"options": options})
    model, setting = build(plan.keys()), run_of(plan, "sm80").setting
    frame = Frame(Tape(), setting, {}, lambda weight: True, {})
    position_ids(frame, model)
    rotary_tables(frame, model, setting.weights)
    return frame


@pytest.mark.parametrize(("family", "wide"), [("llama", False), ("olmo2", True)])
def test_rotary_tables_are_cast_to_hidden_states_but_for_olmo2(family: str, wide: bool) -> None:
    frame = made({**LLAMA, "model_type": family, "pad_token_id": None})
    assert [frame.tape.dtype[frame.names[wave]] == FP32 for wave in ("cos", "sin")] == [wide, wide]


@pytest.mark.parametrize(
    ("config", "sequences"),
    [
        (LLAMA, {POSITIONS: 1}),
        (OPT, {POSITIONS: BATCH, "position mask": BATCH}),
        ({**BERT, "model_type": "bert"}, {"token_type_ids": 1}),  # positions are read from a buffer
        ({**BERT, "model_type": "roberta"}, {POSITIONS: BATCH, "token_type_ids": BATCH}),
    ],
)
def test_positions_are_numbered(config: dict[str, Any], sequences: dict[str, int]) -> None:
    frame = made(config)
    names = (POSITIONS, "position mask", "token_type_ids")
    found = {name: frame.names[name] for name in names if name in frame.names}
    born = {name: value for name, value in found.items() if frame.tape.store[value] != EXTERNAL}
    assert {name: elements(frame.tape.dims[value]) // SEQUENCE for name, value in born.items()} == sequences


def test_opt_counts_by_the_batchs_own_mask() -> None:
    assert "position mask" not in made(OPT, batch_tensors=["input_ids", "attention_mask"]).names
