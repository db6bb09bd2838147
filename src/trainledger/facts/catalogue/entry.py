"""What a catalogue row is, and the two helpers that keep rows short."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source

Value = int | float | str | bool | None | tuple[int, ...] | tuple[str, ...]
Keys = Mapping[str, Value]


@dataclass(frozen=True, slots=True)
class Entry:
    """One named model.

    `config`: the keys of its Hugging Face `config.json` that change shapes or what autograd keeps, as pairs.
    `parameters`: its exact count of weights, tied ones once, prediction heads for further tokens left out; None
    where no exact count was published or the published one counts something else.
    `source`: the model's page on the Hugging Face Hub and the month in which it was published.
    """

    name: str
    hub_id: str
    config: tuple[tuple[str, Value], ...]
    parameters: int | None
    source: Source

    def keys(self) -> dict[str, object]:
        """The keys as `config.json` has them, a fresh dict: lists where the file has lists."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in self.config}


# Files that are known to hold fp32; those of a row that says nothing are taken to hold bf16.
WIDE: Keys = {"dtype": "float32"}


def row(name: str, hub_id: str, date: str, parameters: int | None, config: Keys) -> Entry:
    """One row; its source is the model's own page on the Hub, published in the month `date`."""
    source = Source(f"{hub_id}, config.json and weights index", f"https://huggingface.co/{hub_id}", date)
    return Entry(name, hub_id, tuple(config.items()), parameters, source)


def shape(hidden: int, layers: int, heads: int, kv_heads: int, ffn: int) -> dict[str, Value]:
    """The five sizes that most decoders state, under Llama's key names (elements and counts)."""
    return {
        "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "intermediate_size": ffn,
    }  # fmt: skip
