"""Measured runs written as files of the front ends: the estimate is that of the record's plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trainledger.answer.estimate import estimate
from trainledger.importers.document import Document
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of

RECORDS = Path(__file__).parents[1] / "data" / "records_front_ends.jsonl"
LLAMA, TINY = "emu-tr_hf_llama3-8b_lora_bf16w_s4096_ckpt", "emu-tr_hf_tinyllama_ddp-8_fp32w_s2048"
AXOLOTL = """
base_model: {folder}
adapter: lora
lora_r: 16
lora_alpha: 32
lora_target_modules: [q_proj, k_proj, v_proj, o_proj]
lora_mlp_kernel: false
sequence_len: 4096
datasets: [{{path: data, type: completion}}]
micro_batch_size: 1
gradient_accumulation_steps: 1
optimizer: adamw_torch
bf16: true
sdp_attention: true
gradient_checkpointing: true
"""
FACTORY = """
torchrun --nproc_per_node 8 src/train.py --stage sft --do_train --model_name_or_path {folder} \\
  --finetuning_type full --disable_gradient_checkpointing --bf16 --flash_attn sdpa --cutoff_len 2048 \\
  --per_device_train_batch_size 1 --gradient_accumulation_steps 1 --optim adamw_torch --dataset data --template x \\
  --ddp_find_unused_parameters false
"""
SWIFT = """
NPROC_PER_NODE=8 swift sft --model {folder} --tuner_type full --torch_dtype float32 --bf16 true --fp16 false \\
  --gradient_checkpointing false --max_length 2048 --gradient_accumulation_steps 1 --optim adamw_torch \\
  --use_logits_to_keep false --dataset data --ddp_find_unused_parameters false
"""


@pytest.mark.parametrize(
    "row, name, text",
    [(LLAMA, "run.yml", AXOLOTL), (TINY, "run.sh", FACTORY), (TINY, "swift.sh", SWIFT)],
    ids=["axolotl", "llamafactory", "swift"],
)
def test_the_files_estimate_is_the_records(tmp_path: Path, row: str, name: str, text: str) -> None:
    rows = {one["id"]: one["plan"] for one in map(json.loads, RECORDS.read_text().splitlines())}
    plan = rows[row]
    keys = {key: value for key, value in plan["model"].items() if key != "name"}
    (tmp_path / "config.json").write_text(json.dumps(keys))
    (tmp_path / name).write_text(text.format(folder=tmp_path))
    device = plan["device"]
    sets = (
        [f"device={device}"] if isinstance(device, str) else [f"device.{key}={value}" for key, value in device.items()]
    )
    draft = read_any([str(tmp_path / name)], sets, versions=plan["stack"]["versions"])
    mine, theirs = estimate(draft.plan), estimate(draft_of(Document(plan, {})).plan)
    assert (mine.peak, mine.steps, mine.parameters) == (theirs.peak, theirs.steps, theirs.parameters)
    assert not draft.unknown
