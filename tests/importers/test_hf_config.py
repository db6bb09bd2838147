"""config.json files as they are found."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainledger.base.problems import InputError
from trainledger.importers.hf_config import model_keys, read_config


def test_a_file_and_its_folder(tmp_path: Path) -> None:
    keys = {"model_type": "llama", "hidden_size": 8, "time_step_limit": [0.0, float("inf")]}
    (tmp_path / "config.json").write_text(json.dumps(keys))
    assert read_config(str(tmp_path)) == (keys, ())
    assert read_config(str(tmp_path / "config.json")) == (keys, ())


def test_a_nested_text_model_is_taken_out() -> None:
    data = {
        "model_type": "gemma3",
        "architectures": ["Gemma3ForConditionalGeneration"],
        "torch_dtype": "bfloat16",
        "text_config": {"model_type": "gemma3_text", "hidden_size": 8},
        "vision_config": {"hidden_size": 4},
    }
    keys, ignored = model_keys(data)
    tower = {"model_type": "gemma3", "hidden_size": 4}
    assert keys == {"model_type": "gemma3_text", "hidden_size": 8, "torch_dtype": "bfloat16", "vision_config": tower}
    assert {one.path for one in ignored} == {"model.model_type", "model.architectures"}


def test_a_quantization_is_reported_as_ignored() -> None:
    keys, ignored = model_keys({"model_type": "llama", "quantization_config": {"bits": 4}})
    assert keys == {"model_type": "llama"}
    assert [one.path for one in ignored] == ["model.quantization_config"]


@pytest.mark.parametrize(
    "text, words",
    [
        ("[]", "holds a list"),
        ("5", "no object"),
        ("", "broken JSON"),
        ("{", "broken JSON"),
        ('{"a": 1,}', "broken JSON"),
        ("{}", "model_type"),
        ('{"model_type": 3}', "model_type"),
        ('{"text_config": {"a": 1}}', "text_config.model_type"),
        ('{"a": ' + "9" * 5000 + "}", "too many digits"),
    ],
)
def test_bad_files_are_refused_in_words(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words):
        read_config(str(path))


def test_a_folder_without_one_and_a_large_one(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_config(str(tmp_path))
    with (tmp_path / "config.json").open("wb") as stream:
        stream.truncate(100 * 10**6)
    with pytest.raises(InputError, match="too large"):
        read_config(str(tmp_path))


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["model_type", "text_config", "hidden_size", "dtype", "llm_config"]), inner, max_size=4
        )
    ),
    max_leaves=10,
)


@settings(max_examples=100, deadline=None)
@given(text=values.map(json.dumps) | st.text(max_size=40))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "config.json"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        keys, _ = read_config(str(path))
    except InputError:
        return
    assert isinstance(keys["model_type"], str)
