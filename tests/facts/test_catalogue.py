"""The catalogue of named models: rows are whole, the index agrees with them, and look-ups answer or explain."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import pytest

from trainledger.base.problems import InputError
from trainledger.facts.catalogue import Entry, every_entry, find_model, names, search
from trainledger.facts.catalogue.index import MODULES

ENTRIES = every_entry()
FEWEST = 80


def test_many_rows_and_the_index_agrees() -> None:
    assert len(ENTRIES) >= FEWEST
    assert tuple(entry.name for entry in ENTRIES) == names()
    assert len(set(names())) == len(names())
    assert all(name == name.lower() for name in names())


def test_hub_ids_are_unique_and_no_name_is_another_row_s_hub_id() -> None:
    hub_ids = [entry.hub_id.lower() for entry in ENTRIES]
    assert len(set(hub_ids)) == len(hub_ids)
    assert not set(hub_ids) & set(names())


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_a_row_is_whole(entry: Entry) -> None:
    keys = entry.keys()
    assert isinstance(keys["model_type"], str)
    assert isinstance(keys["tie_word_embeddings"], bool)
    assert isinstance(keys["vocab_size"], int)
    assert keys.get("hidden_size", keys.get("n_embd"))
    assert keys.get("num_hidden_layers", keys.get("n_layer"))
    assert entry.source.where.endswith(entry.hub_id)
    year, month = entry.source.date.split("-")
    assert int(year) >= 2018
    assert 1 <= int(month) <= 12
    assert entry.parameters is None or entry.parameters > 0


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.name)
def test_heads_divide(entry: Entry) -> None:
    keys = entry.keys()
    heads = keys.get("num_attention_heads", keys.get("n_head"))
    kv_heads = keys.get("num_key_value_heads", keys.get("num_kv_heads", 1))
    hidden = keys.get("hidden_size", keys.get("n_embd"))
    assert isinstance(heads, int)
    assert isinstance(kv_heads, int)
    assert isinstance(hidden, int)
    assert heads % kv_heads == 0
    assert "head_dim" in keys or hidden % heads == 0
    layer_types = keys.get("layer_types")
    assert layer_types is None or len(list(layer_types)) == keys["num_hidden_layers"]  # type: ignore[call-overload]


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("llama-3-8b", 8_030_261_248),
        ("qwen2.5-0.5b", 494_032_768),
        ("gpt2", 124_439_808),
        ("gemma-2-9b", 9_241_705_984),
    ],
)
def test_published_counts(name: str, parameters: int) -> None:
    assert find_model(name).parameters == parameters


def test_rows_cannot_be_changed() -> None:
    entry = find_model("llama-3.1-8b")
    with pytest.raises(dataclasses.FrozenInstanceError):
        entry.name = "other"  # type: ignore[misc]
    entry.keys()["hidden_size"] = 1
    assert find_model("llama-3.1-8b").keys()["hidden_size"] == 4096
    assert isinstance(find_model("gpt-oss-20b").keys()["layer_types"], list)


@pytest.mark.parametrize(
    "text", ["llama-3.1-8b", " LLAMA-3.1-8B ", "meta-llama/Llama-3.1-8B", "META-LLAMA/llama-3.1-8b"]
)
def test_names_and_hub_ids_are_found_in_any_case(text: str) -> None:
    assert find_model(text).hub_id == "meta-llama/Llama-3.1-8B"


@pytest.mark.parametrize(("text", "near"), [("llama-3.1-8", "llama-3.1-8b"), ("Qwen/Qwen2.5-7", "qwen2.5-7b")])
def test_an_unknown_name_is_refused_with_the_nearest(text: str, near: str) -> None:
    with pytest.raises(InputError) as caught:
        find_model(text)
    problem = caught.value.problems[0]
    assert text in problem.found
    assert near in problem.fix


@pytest.mark.parametrize("text", ["", "   ", "zzzzzzzz", "x" * 10_000, "\0"])
def test_nonsense_is_refused_without_a_suggestion(text: str) -> None:
    with pytest.raises(InputError) as caught:
        find_model(text)
    assert not caught.value.problems[0].fix


def test_search() -> None:
    assert search("") == list(ENTRIES)
    assert {entry.name for entry in search("qwen3 moe")} == {
        "qwen3-30b-a3b",
        "qwen3-235b-a22b",
        "qwen3-coder-480b-a35b",
    }
    assert [entry.name for entry in search("BERT large uncased")] == ["bert-large-uncased"]
    assert search("no such model") == []


def test_names_alone_read_no_rows_and_one_name_reads_one_vendor() -> None:
    code = (
        "import sys; from trainledger.facts.catalogue import find_model, names; names();"
        "rows = lambda: sum(f'trainledger.facts.catalogue.{m}' in sys.modules for m in sys.argv[1:]);"
        "assert rows() == 0; find_model('phi-2'); assert rows() == 1"
    )
    done = subprocess.run([sys.executable, "-c", code, *MODULES], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
