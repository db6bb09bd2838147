"""A Hugging Face config.json to the model's keys."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

from trainledger.base.problems import InputError, Problem
from trainledger.facts.limits import CONFIG_FILE
from trainledger.facts.towers import BESIDE
from trainledger.importers.document import renamed
from trainledger.importers.draft import Ignored
from trainledger.importers.files import read_text
from trainledger.importers.json_text import parse_json

NESTED = ("text_config", "llm_config", "language_config", "thinker_config")
CARRIED = ("tie_word_embeddings", "dtype", "torch_dtype", "name")
UNUSED = {"quantization_config": "quantization is the plan's own key"}


def read_config(path: str, key: str = "model") -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    """The model's keys in a config.json (or in the folder that holds one), and the keys that are no part of them.

    `key` is the plan's key that named the path. Raises InputError for a file that cannot be read, is broken, is no
    object, or describes no language model.
    """
    file = Path(path)
    with suppress(OSError, ValueError):  # a path that the system refuses is refused when it is read
        file = file / "config.json" if file.is_dir() else file
    text = read_text(str(file), CONFIG_FILE, key)
    try:
        data = parse_json(text, str(file)).data
    except InputError as error:
        raise renamed(error, key) from None
    if not isinstance(data, dict):
        found = f"{file} holds {'a list' if isinstance(data, list) else 'no object'}"
        raise InputError([Problem(key, found, "a config.json is an object of the model's keys")])
    return model_keys(data, key)


def model_keys(data: dict[str, Any], key: str = "model") -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    """The language model's keys of a configuration: those of its nested `text_config` where it has one, with the
    config of a tower that stands beside it.

    Raises InputError when it is empty or names no `model_type`.
    """
    ignored = []
    for name in NESTED:
        inner = data.get(name)
        if isinstance(inner, dict) and inner:
            carried = {kept: data[kept] for kept in CARRIED if kept in data} | _towers(data)
            reason = f"the language model is described by {name}"
            ignored += [Ignored(f"{key}.{other}", reason) for other in data if other != name and other not in carried]
            keys, deeper = model_keys({**carried, **inner}, f"{key}.{name}")
            return keys, (*ignored, *deeper)
    ignored += [Ignored(f"{key}.{name}", reason) for name, reason in UNUSED.items() if data.get(name)]
    if not isinstance(data.get("model_type"), str) or not data["model_type"]:
        found = "missing" if "model_type" not in data else "no text"
        fix = "Give config.json's keys with model_type, or the model's name alone."
        raise InputError([Problem(f"{key}.model_type", found, "the model's family is required, such as llama", fix)])
    return {name: value for name, value in data.items() if name not in UNUSED}, tuple(ignored)


def _towers(data: dict[str, Any]) -> dict[str, Any]:
    """The configs of towers, each with the type that it states or, as Transformers reads it, that of the whole."""
    found = {name: data[name] for name in BESIDE if isinstance(data.get(name), dict)}
    return {name: {"model_type": data.get("model_type"), **tower} for name, tower in found.items()}
