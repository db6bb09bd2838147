"""What `model:` may be."""

from __future__ import annotations

import builtins
import json
from pathlib import Path
from typing import Any

import pytest

from trainledger.base.problems import InputError
from trainledger.importers.hub import config_path, is_hub_id
from trainledger.importers.model_source import resolve_model


def test_a_catalogue_name_gives_keys() -> None:
    keys, ignored = resolve_model("llama-3.2-1b")
    assert (keys["model_type"], keys["hidden_size"], keys["name"]) == ("llama", 2048, "llama-3.2-1b")
    assert ignored == ()


def test_keys_are_laid_over_a_named_model() -> None:
    keys, _ = resolve_model({"name": "llama-3.2-1b", "num_hidden_layers": 2})
    assert (keys["num_hidden_layers"], keys["hidden_size"]) == (2, 2048)


def test_keys_in_place_stay_as_they_are() -> None:
    given = {"name": "free text", "model_type": "llama", "hidden_size": 8}
    assert resolve_model(given) == (given, ())
    with pytest.raises(InputError, match="model_type"):
        resolve_model({"hidden_size": 8})


def test_a_path_is_taken_from_the_plans_folder(tmp_path: Path) -> None:
    (tmp_path / "tiny").mkdir()
    (tmp_path / "tiny" / "config.json").write_text(json.dumps({"model_type": "llama"}))
    assert resolve_model("tiny", str(tmp_path))[0] == {"model_type": "llama", "name": "tiny"}
    with pytest.raises(InputError, match="no such file"):
        resolve_model("./missing.json", str(tmp_path))


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match=r"llama-3\.2-1b"):
        resolve_model("lama-3.2-1b")


def test_hub_ids_are_told_by_their_form() -> None:
    assert is_hub_id("meta-llama/Llama-3.2-1B")
    assert not any(map(is_hub_id, ("llama", "a/b/c", "./a", "a/", "../b", "")))


def test_without_the_extra_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any, **more: Any) -> Any:
        if name.startswith("huggingface_hub"):
            raise ImportError(name)
        return real(name, *rest, **more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(InputError, match=r"trainledger\[hub\]"):
        config_path("some-one/some-model")
