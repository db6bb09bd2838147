"""Measured runs written as the files that a user would have: the estimate is that of the record's plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainledger.answer.estimate import estimate
from trainledger.importers.document import Document
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of

HERE = Path(__file__).parent / "records"
ROWS = {
    row["id"]: row["plan"]
    for row in map(json.loads, (Path(__file__).parents[1] / "data" / "records_outside.jsonl").read_text().splitlines())
}
FILES = {
    "emu-tr_hf_tinyllama_ds-z2-8_bf16w_s2048_ckpt": "zero2/run.sh",
    "emu-tr_hf_tinyllama_ds-z3-8_bf16w_s2048_ckpt": "zero3/run.sh",
    "emu-tr_hf_tinyllama_fsdp2-8_fp32w_s2048": "fsdp2/run.sh",
    "emu-tr_hf_tinyllama_ddp-8_fp32w_s2048": "ddp/run.sh",
    "emu-tr_hf_tinyllama_bf16w_s2048_b4_ckpt_bnb8": "bnb8/args.yaml",
    "emu-tr_hf_qwen05b_fp32w_fp16_s2048_b2": "fp16/args.json",
    "emu-tr_sft_llama2-7b-8l_fp32w_s2048_ckpt": "sft/sft.yaml",
    "emu-tr_sft_llama32-1b_bf16w_s4096_b2_ckpt_accum2": "sft_accumulated/run.sh",
    "fms-a100_80gb-034": "lora/args.json",
    "fms-a100_80gb-001": "fsdp1/run.sh",
}


def test_every_row_has_its_file() -> None:
    assert set(ROWS) == set(FILES)


@pytest.mark.parametrize("row", FILES)
def test_the_files_estimate_is_the_records(row: str) -> None:
    plan: dict[str, Any] = ROWS[row]
    device = plan["device"]
    sets = (
        [f"device={device}"] if isinstance(device, str) else [f"device.{key}={value}" for key, value in device.items()]
    )
    draft = read_any([str(HERE / FILES[row])], sets, versions=plan["stack"]["versions"])
    mine, theirs = estimate(draft.plan), estimate(draft_of(Document(plan, {})).plan)
    assert (mine.peak, mine.steps, mine.parameters) == (theirs.peak, theirs.steps, theirs.parameters)
    assert not draft.unknown
