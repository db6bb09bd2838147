"""Measured Megatron runs as the scripts, command lines and YAML that start them: the estimate is the record's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainledger.answer.estimate import estimate
from trainledger.importers.document import Document
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of

FILES = Path(__file__).parent / "files" / "megatron"
LINES = (Path(__file__).parents[1] / "data" / "records_outside_megatron.jsonl").read_text().splitlines()
ROWS: dict[str, dict[str, Any]] = {row["id"]: row["plan"] for row in map(json.loads, LINES)}
CASES = {
    "simumax-llama3_70b_l12_tp1_pp2_dp4_mbc4_cef": "llama70b_tp1_pp2.sh",
    "simumax-llama3_405b_l4_tp4_pp1_dp2_mbc32_cef": "llama405b_tp4.txt",
    "vt-R6-gpt2xl-dp4-mbs15-distopt": "gpt2xl_zero.sh",
    "mlm-gpt-te_tp4_pp1_dist_optimizer_overlap_grad_reduce_param_gather-dev-gb200": "tp4_pp1_overlap.yaml",
    "mlm-moe-te_tp2_pp1_te_8experts_etp1_ep4-lts-a100": "experts_ep4.yaml",
    "mlm-gpt-te_tp1_pp2_resume_torch_dist_rope_embeddings-dev-gb200": "rope_tp1_pp2.yaml",
    "mlm-gpt-te_tp1_pp4_vp1-dev-gb200": "interleaved_pp4.sh",
    "mlm-gpt-te_tp2_pp2_mla-dev-gb200": "latent_tp2_pp2.yaml",
}


def test_every_row_has_its_file() -> None:
    assert set(ROWS) == set(CASES)


@pytest.mark.parametrize("row", CASES)
def test_the_files_estimate_is_the_records(row: str) -> None:
    plan = ROWS[row]
    sets = [f"device={plan['device']}", f"parallel.world={plan['parallel']['world']}"]
    draft = read_any([str(FILES / CASES[row])], sets, versions=plan["stack"]["versions"])
    mine, theirs = estimate(draft.plan), estimate(draft_of(Document(plan, {})).plan)
    assert (mine.peak, mine.steps, mine.parameters) == (theirs.peak, theirs.steps, theirs.parameters)
    assert not draft.unknown
    assert not draft.uncounted


@pytest.mark.parametrize("row", [row for row, file in CASES.items() if not file.endswith(".yaml")])
def test_a_launcher_says_the_world(row: str) -> None:
    draft = read_any([str(FILES / CASES[row])], versions=ROWS[row]["stack"]["versions"])
    assert draft.plan.parallel.world == ROWS[row]["parallel"]["world"]
