"""What a row of the model types is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class ModelType:
    """A Hugging Face `model_type`: the module of `model.families` that builds it, and defaults of its config class."""

    name: str
    module: str
    defaults: tuple[tuple[str, Any], ...]
    source: Source


def config_class(name: str, folder: str = "") -> Source:
    """The source of a config class's defaults: Transformers' file for that type."""
    path = folder or name
    return Source("Transformers config class defaults", f"models/{path}/configuration_{path}.py", "5.24.0")


def row(name: str, module: str, folder: str = "", **defaults: Any) -> ModelType:
    """The row of a model type with these defaults of its config class."""
    return ModelType(name, module, tuple(defaults.items()), config_class(name, folder))
