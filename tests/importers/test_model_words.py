"""Keys of a model that its type does not look for: named with the key that is meant, and never a real one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainledger.base.problems import InputError
from trainledger.facts.catalogue import every_entry
from trainledger.facts.model_types import MODEL_TYPES
from trainledger.importers.document import Document
from trainledger.importers.model_words import laid_over, unread
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of

BATCH = {"micro_batch": 1, "sequence": 8}
TINY = {"model_type": "gpt2", "n_layer": 2, "n_embd": 64, "n_head": 4, "vocab_size": 100}


def plan(tmp_path: Path, model: str) -> str:
    path = tmp_path / "plan.yaml"
    path.write_text(f"model: {model}\nbatch: {{micro_batch: 1, sequence: 8}}\n", encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("layers", "num_hidden_layers"),
        ("n_layers", "num_hidden_layers"),
        ("num_hiden_layers", "num_hidden_layers"),
        ("hidden", "hidden_size"),
        ("vocabsize", "vocab_size"),
        ("kv_heads", "num_key_value_heads"),
    ],
)
def test_a_key_that_is_meant_is_refused_of_set_and_named_beside_a_file(tmp_path: Path, key: str, near: str) -> None:
    with pytest.raises(InputError, match=f"Did you mean model.{near}"):
        read_any([plan(tmp_path, "qwen2.5-7b")], [f"model.{key}=8"])
    (one,) = read_any([plan(tmp_path, f"{{name: qwen2.5-7b, {key}: 8}}")]).unknown
    assert (one.path, one.near, one.where.endswith("plan.yaml:1")) == (f"model.{key}", f"model.{near}", True)


def test_a_free_key_is_named_where_set_gave_it_and_one_that_moves_nothing_is_not(tmp_path: Path) -> None:
    file = plan(tmp_path, "qwen2.5-7b")
    assert [one.path for one in read_any([file], ["model.foo=1"]).unknown] == ["model.foo"]
    assert read_any([file], ["model.rope_theta=1e6"]).unknown == ()
    assert read_any([plan(tmp_path, "{name: qwen2.5-7b, foo: 1}")]).unknown == ()


def test_a_size_takes_the_place_of_the_same_under_another_word(tmp_path: Path) -> None:
    keys = read_any([plan(tmp_path, "gpt2")], ["model.num_hidden_layers=3"]).plan.keys()
    assert keys["num_hidden_layers"] == 3
    assert "n_layer" not in keys
    assert laid_over({"model_type": "gpt2", "n_layer": 12}, {"layers": 3})["n_layer"] == 12


def test_a_size_said_twice_is_refused() -> None:
    with pytest.raises(InputError, match="both say one size"):
        draft_of(Document({"model": {**TINY, "num_hidden_layers": 3}, "batch": BATCH}, {}))
    assert draft_of(Document({"model": {**TINY, "num_hidden_layers": 2}, "batch": BATCH}, {})).unknown == ()


def test_no_key_of_a_known_model_is_doubted() -> None:
    for entry in every_entry():
        keys = dict(entry.keys())
        assert not [one for one in unread(keys, set(keys)) if one[1]], entry


def test_no_key_of_a_real_configuration_is_doubted() -> None:
    transformers = pytest.importorskip("transformers")
    for kind in MODEL_TYPES:
        try:
            keys: dict[str, Any] = transformers.AutoConfig.for_model(kind).to_dict()
        except ValueError:
            continue  # a type that is not of Transformers
        assert not list(unread(keys, ())), kind
