"""The model of a plan by the name that an outside file gives it: its Hub id, or a configuration written beside it."""

from __future__ import annotations

from trainledger.facts.catalogue import Entry, every_entry
from trainledger.facts.megatron import FAMILY
from trainledger.importers.emit import Said, refuse
from trainledger.model.build import build

SIZES = ("model_type", "hidden_size", "num_hidden_layers", "vocab_size", "n_embd", "n_layer")


def alike(said: Said) -> tuple[Entry, ...]:
    """The catalogue's rows of which the plan's model has every shape, that of its own name first."""
    keys, name = said.plan.keys(), str(said.plan.keys().get("name", "")).lower()
    sized = [entry for entry in every_entry() if all(entry.keys().get(size) == keys.get(size) for size in SIZES)]
    built = build(keys) if sized else None
    found = [entry for entry in sized if build(entry.keys()) == built]
    return tuple(sorted(found, key=lambda one: name not in (one.name, one.hub_id.lower())))


def hub_model(said: Said) -> tuple[str, dict[str, object] | None]:
    """A name on the Hub; or an empty one and the configuration that is written beside the file.

    Raises InputError for a model that Transformers does not have.
    """
    keys = said.plan.keys()
    if keys.get("model_type") == FAMILY and not said.partial:
        raise refuse(said, "model.model_type", f"Transformers has no model {keys['model_type']}")
    entry = next(iter(alike(said)), None)
    return (entry.hub_id, None) if entry else ("", {key: value for key, value in keys.items() if key != "name"})
