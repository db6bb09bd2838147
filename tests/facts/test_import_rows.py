"""Tables of outside keys: each key once, each path one of the plan, each default one that its release has."""

from __future__ import annotations

from collections import Counter
from fnmatch import fnmatchcase

import pytest

from trainledger.facts.import_accelerate import ACCELERATE_KEYS
from trainledger.facts.import_deepspeed import BY_HIDDEN_SIZE, DEEPSPEED_KEYS, FILLED_IN
from trainledger.facts.import_hf import MODEL_KEYS, TRAINER_KEYS
from trainledger.facts.import_hf_filled import (
    ATTENTION_WORDS,
    DTYPE_WORDS,
    FSDP_VERSION,
    TRL_FILLED,
    filled,
)
from trainledger.facts.import_hf_trl import SIGNS, TASK_SIGNS, TRL_COMMANDS, TRL_KEYS
from trainledger.facts.import_launch import VARIABLES
from trainledger.facts.import_peft import ADAPTER_KEYS, ADAPTER_KINDS, ADAPTER_OPTIONS, QUANT_METHODS
from trainledger.facts.import_rows import FilledRow, KeyRow, Means
from trainledger.facts.option_row import Direction
from trainledger.facts.options import find_option
from trainledger.plan.names import AdapterKind, Attention, Float, QuantizationKind, Task

TABLES = {
    "trainer": (*TRAINER_KEYS, *MODEL_KEYS, *TRL_KEYS),
    "deepspeed": DEEPSPEED_KEYS,
    "accelerate": ACCELERATE_KEYS,
    "adapter": ADAPTER_KEYS,
    "environment": VARIABLES,
}


@pytest.mark.parametrize("name", TABLES)
def test_a_key_has_one_row(name: str) -> None:
    counts = Counter(row.name for row in TABLES[name])
    assert [key for key, count in counts.items() if count > 1] == []


@pytest.mark.parametrize("row", [row for row in DEEPSPEED_KEYS if row.path], ids=lambda row: row.name)
def test_a_path_is_an_option_of_the_plan(row: KeyRow) -> None:
    assert find_option("parallel.options", row.path.removeprefix("parallel.options.")) is not None


@pytest.mark.parametrize("name", ADAPTER_OPTIONS)
def test_an_adapters_option_is_one_of_the_plan(name: str) -> None:
    assert find_option("adapter.options", name) is not None


@pytest.mark.parametrize("name", sorted({*FILLED_IN, *BY_HIDDEN_SIZE}))
def test_what_is_filled_in_is_a_key(name: str) -> None:
    assert any(fnmatchcase(name, row.name) for row in DEEPSPEED_KEYS)


def test_words_are_the_plans() -> None:
    assert set(DTYPE_WORDS.values()) <= set(Float.__args__)  # type: ignore[attr-defined]
    assert set(ATTENTION_WORDS.values()) <= set(Attention.__args__)  # type: ignore[attr-defined]
    assert set(ADAPTER_KINDS.values()) <= set(AdapterKind.__args__)  # type: ignore[attr-defined]
    assert set(QUANT_METHODS.values()) <= set(QuantizationKind.__args__)  # type: ignore[attr-defined]
    assert {*TRL_COMMANDS.values(), *TASK_SIGNS.values()} <= set(Task.__args__)  # type: ignore[attr-defined]


def test_signs_are_keys_of_the_tables() -> None:
    names = {row.name for row in TABLES["trainer"]}
    assert SIGNS | set(TASK_SIGNS) <= names


def test_a_default_holds_from_one_release_to_another() -> None:
    assert [row.value for row in filled(FSDP_VERSION, "5.9.0")] == [1]
    assert [row.value for row in filled(FSDP_VERSION, "5.10.0")] == [2]
    assert [row.value for row in filled(FSDP_VERSION, None)] == [2]
    assert len(filled(TRL_FILLED, "0.13.0")) < len(filled(TRL_FILLED, None)) == len(TRL_FILLED)


def test_a_row_that_is_not_counted_says_which_way() -> None:
    source = TRAINER_KEYS[0].source
    with pytest.raises(ValueError, match="a direction goes with"):
        KeyRow("x", Means.UNCOUNTED, source)
    with pytest.raises(ValueError, match="a direction goes with"):
        KeyRow("x", Means.READ, source, direction=Direction.LOW)
    assert FilledRow("x", 1, "why", source).since == ""
