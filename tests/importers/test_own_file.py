"""Frameworks' own configurations: what the tables of all of them hold, and a command over a configuration."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from trainledger.facts import (
    import_litgpt,
    import_torchtitan,
    import_torchtitan_models,
    import_torchtitan_words,
    import_torchtune,
)
from trainledger.facts.catalogue import find_model
from trainledger.facts.import_rows import KeyRow
from trainledger.facts.import_words import WordRow
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.importers.outside import read_any

KEYS = [import_litgpt.KEYS, import_torchtitan.KEYS, import_torchtune.KEYS]
MODELS = [import_litgpt.MODELS, import_torchtitan_models.MODELS, import_torchtune.BUILDERS]
NAMES = [import_litgpt.OPTIMIZERS, import_torchtitan_words.OPTIMIZERS, import_torchtune.OPTIMIZERS]


@pytest.mark.parametrize("rows", KEYS)
def test_a_key_has_one_row(rows: tuple[KeyRow, ...]) -> None:
    names = [row.name for row in rows]
    assert sorted(names) == sorted(set(names))


@pytest.mark.parametrize("models", MODELS)
def test_a_models_name_is_one_of_the_catalogue(models: Mapping[str, WordRow]) -> None:
    named = [row for row in models.values() if row.value]
    assert named
    assert all(find_model(row.value).name == row.value for row in named)
    assert all("model_type" in row.keys for row in models.values() if not row.value)


@pytest.mark.parametrize("names", NAMES)
def test_an_optimizers_name_is_one_of_the_plan(names: Mapping[str, WordRow]) -> None:
    assert {row.value for row in names.values()} <= set(OPTIMIZERS)


@pytest.mark.parametrize(
    ("line", "key"),
    [
        ("litgpt finetune_full microsoft/phi-2 --train.max_seq_length 64 --devices $N", "devices"),
        ("tune run full_finetune_single_device --config c.yaml batch_size=$N", "batch_size"),
        ("NGPU=8 MODULE=llama3 CONFIG=llama3_8b ./run_train.sh --training.local_batch_size=$N", "training.local_batch"),
    ],
)
def test_a_value_that_only_a_shell_knows_is_asked_for(tmp_path: Path, line: str, key: str) -> None:
    script, config = tmp_path / "run.sh", tmp_path / "c.yaml"
    script.write_text(f"{line}\n", encoding="utf-8")
    config.write_text("model: {_component_: torchtune.models.llama3_2.llama3_2_1b}\n", encoding="utf-8")
    with pytest.raises(ValueError, match=f"{key}.*--env NAME=VALUE"):
        read_any([str(script)])
