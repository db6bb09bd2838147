"""Variables that a script sets, by the trainer that it starts: the allocator's settings, those that move memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainledger.base.problems import InputError
from trainledger.importers.outside import read_any

TITAN = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nseq_len = 1024\nlocal_batch_size = 1\n'
TUNE = """\
model: {_component_: torchtune.models.llama3_2.llama3_2_1b}
tokenizer: {max_seq_len: 512}
batch_size: 1
optimizer: {_component_: torch.optim.AdamW}
loss: {_component_: torch.nn.CrossEntropyLoss}
"""
LINES = {
    "torchtitan": ("titan.toml", TITAN, "torchrun --nproc_per_node 8 -m torchtitan.train --job.config_file titan.toml"),
    "torchtune": ("tune.yaml", TUNE, "tune run full_finetune_single_device --config tune.yaml"),
    "trainer": ("", "", "python run_clm.py --model_name_or_path llama-3.2-1b --block_size 512"),
}


def script(folder: Path, name: str, variables: str) -> str:
    file, text, line = LINES[name]
    if file:
        (folder / file).write_text(text, encoding="utf-8")
    path = folder / "run.sh"
    path.write_text(f"{variables}\n{line}\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("name", LINES)
def test_the_allocators_settings_are_keys_of_the_plan(name: str, tmp_path: Path) -> None:
    text = "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True,max_split_size_mb:64"
    draft = read_any([script(tmp_path, name, text)])
    assert draft.plan.stack.allocator == {"expandable_segments": True, "max_split_size_mb": 64}


@pytest.mark.parametrize("name", LINES)
def test_a_variable_that_moves_memory_is_a_key_too(name: str, tmp_path: Path) -> None:
    draft = read_any([script(tmp_path, name, "export CUBLAS_WORKSPACE_CONFIG=:4096:8")])
    assert draft.plan.stack.env == {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}


@pytest.mark.parametrize("name", LINES)
def test_a_variable_of_the_libraries_that_no_table_has_is_listed(name: str, tmp_path: Path) -> None:
    draft = read_any([script(tmp_path, name, "export NCCL_NO_SUCH_THING=1")])
    assert [one.path for one in draft.unknown] == ["NCCL_NO_SUCH_THING"]


@pytest.mark.parametrize("name", LINES)
def test_a_broken_setting_is_refused_with_its_place(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"run\.sh:1"):
        read_any([script(tmp_path, name, "export PYTORCH_CUDA_ALLOC_CONF=expandable_segment:True")])
