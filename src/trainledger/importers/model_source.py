"""What a plan's `model:` means: a catalogue name, a path, a Hub id, or keys in place; always resolved to keys."""

from __future__ import annotations

import os
from typing import Any

from trainledger.base.problems import InputError
from trainledger.facts.names import CHECKPOINT_DTYPES
from trainledger.importers.draft import Ignored
from trainledger.importers.hf_config import model_keys, read_config
from trainledger.importers.hub import config_path, is_hub_id
from trainledger.importers.model_words import laid_over


def resolve_model(model: str | dict[str, Any], folder: str = "") -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    """The model's keys, `name` among them, and the keys of its file that were ignored.

    A text is looked for in the catalogue, then as a path (relative to `folder`, the plan's, or to the working folder),
    then on the Hub when it has an id's form. A mapping without `model_type` takes the model that its `name` means and
    lays its other keys over it. Raises InputError when it is none of these.
    """
    if isinstance(model, str):
        keys, ignored = _named(model.strip(), folder)
        return {**keys, "name": model.strip()}, ignored
    name = model.get("name")
    if (
        "model_type" in model
        or not isinstance(name, str)
        or not name.strip()
        or any(key.endswith("_config") for key in model)
    ):
        return model_keys(model)
    keys, ignored = _named(name.strip(), folder)
    return laid_over(keys, model), ignored


def catalogued(model: object) -> str | None:
    """The dtype of a catalogue model's files, where its row says one."""
    from trainledger.facts.catalogue import find_model

    if not isinstance(model, str):
        return None
    try:
        named = find_model(model).keys().get("dtype")
    except InputError:
        return None
    return CHECKPOINT_DTYPES.get(str(named))


def _named(name: str, folder: str) -> tuple[dict[str, Any], tuple[Ignored, ...]]:
    from trainledger.facts.catalogue import find_model

    refusal: InputError | None = None
    try:
        return dict(find_model(name).keys()), ()
    except InputError as error:
        refusal = error
    path = _path(name, folder)
    if path:
        return read_config(path)
    if is_hub_id(name):
        return read_config(config_path(name))
    raise refusal


def _path(name: str, folder: str) -> str:
    """The path that a name is: it exists, or can be nothing else. Empty when it may be a model's name."""
    for base in (folder, ""):
        path = os.path.join(base, os.path.expanduser(name)) if base else os.path.expanduser(name)
        try:
            if os.path.exists(path):
                return path
        except ValueError:
            return ""
    looks = name.endswith(".json") or name.startswith((".", "/", "~", "\\")) or name.count("/") > 1
    return os.path.expanduser(name) if looks else ""
