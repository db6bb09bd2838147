"""LitGPT: the one model class that runs every family, how its config differs by family, and how its scripts train.

Read in source: litgpt/{model,lora,config}.py, litgpt/finetune/lora.py, litgpt/utils.py (2023-10 to 0.5.13), and
lightning/fabric/plugins/precision/{half,fsdp,bitsandbytes}.py (2.1.0, 2.2.5).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.dtypes import FP16, DType

NAME = "litgpt"


def _read(path: str, read: str = "2023-10 to 0.5.13") -> Source:
    return Source("LitGPT", f"litgpt/{path}", read)


@dataclass(frozen=True, slots=True)
class Family:
    """How LitGPT's config says a family. `layer_norm`: LayerNorm with biases, else RMSNorm (`unit`: times 1 + weight).
    `gated`: two projections into the feed-forward. `parallel`: both branches read the layer's input; a text names the
    key that says so. `shared`: they read one norm. `bias`: of every linear layer of a block; `head_bias`: of the head.
    `scaled`: embeddings are scaled. `after`: each branch's result is normalised too, scores are capped."""

    model_types: tuple[str, ...]
    source: Source
    layer_norm: bool = False
    unit: bool = False
    gated: bool = True
    parallel: str | bool = False
    shared: bool = False
    bias: bool = False
    head_bias: bool = False
    scaled: bool = False
    after: bool = False


_CONFIG = _read("config.py")
FAMILIES: dict[str, Family] = {
    name: row
    for row in (
        Family(("llama", "mistral", "phi3"), _CONFIG),
        Family(("gemma",), _CONFIG, unit=True, scaled=True),
        Family(("gemma2",), _CONFIG, unit=True, scaled=True, after=True),
        Family(
            ("gpt_neox",), _CONFIG, layer_norm=True, gated=False, parallel="use_parallel_residual", bias=True
        ),
        Family(
            ("phi",), _CONFIG, layer_norm=True, gated=False, parallel=True, shared=True, bias=True, head_bias=True
        ),
        Family(("falcon",), _CONFIG, layer_norm=True, gated=False, parallel=True, shared=True),
    )
    for name in row.model_types
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Switch:
    """A switch of LitGPT's LoRA, and the modules of a Transformers model that it means."""

    name: str
    modules: tuple[str, ...]
    source: Source


_LORA = _read("lora.py, convert_hf_checkpoint.py")
SWITCHES: tuple[Switch, ...] = (
    Switch("query", ("q_proj", "lora_query"), _LORA),
    Switch("key", ("k_proj", "lora_key"), _LORA),
    Switch("value", ("v_proj", "lora_value"), _LORA),
    Switch("projection", ("o_proj", "dense", "lora_projection"), _LORA),
    Switch(
        "mlp",
        ("gate_proj", "up_proj", "down_proj", "fc1", "fc2", "dense_h_to_4h", "dense_4h_to_h", "lora_mlp"),
        _LORA,
    ),
    Switch("head", ("lm_head", "embed_out", "lora_head"), _LORA),
)


@dataclass(frozen=True, slots=True)
class Chunks:
    """The head's logits are made for this many tokens of every sequence at once."""

    tokens: int
    source: Source


HEAD_CHUNKS = Chunks(128, _read("finetune/lora.py, model(input_ids, lm_head_chunk_size=128); utils.py"))


@dataclass(frozen=True, slots=True)
class Quantised:
    """Fabric's BitsandbytesPrecision quantises every linear layer, the head too, from a copy in this dtype."""

    loaded: DType
    source: Source


QUANTISED = Quantised(
    FP16, Source("Lightning Fabric", "lightning/fabric/plugins/precision/bitsandbytes.py", "2.1.0, 2.2.5")
)
FABRIC = Source("Lightning Fabric", "lightning/fabric/{wrappers,strategies/fsdp}.py, convert_output", "2.1.0, 2.2.5")
LONGEST_FIRST = Source(
    "Lit-GPT before its first release", "finetune/lora.py, get_batch: the longest sample in the first batch alone",
    "2023-10",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Known:
    """The release whose code the rules follow, and the release of bitsandbytes that it asks for."""

    name: str
    version: str
    bitsandbytes: str
    source: Source


KNOWN = Known(NAME, "0.4.13", "0.42.0", _read("finetune/lora.py, RequirementCache; pyproject.toml", "0.4.13"))
