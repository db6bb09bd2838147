"""What stands beside the language model of a multimodal one: the parts of its config, and how large a tower is.

A vision tower's layers are those of a plain transformer: four matrices of attention, two or three of a feed-forward.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source

BESIDE = ("vision_config", "audio_config")  # keys of config.json that describe a tower


@dataclass(frozen=True, slots=True)
class Tower:
    """Towers of these `model_type`s: the keys of their hidden size, layers and inner width, each with its default (of
    width, one that stands for a multiple of the hidden size ends in `ratio`), and matrices of attention and of the
    feed-forward."""

    kinds: tuple[str, ...]
    hidden: tuple[str, int]
    layers: tuple[str, int]
    width: tuple[str, float]
    attention: int
    matrices: int
    source: Source


def _row(
    kinds: str, sizes: tuple[int, int, float], names: tuple[str, str, str], matrices: int = 2, attention: int = 4
) -> Tower:
    first, *_ = kinds.split()
    hidden, layers, width = zip(names, sizes, strict=True)
    folder = first.removesuffix("_model").removesuffix("_vision").removesuffix("_audio")
    source = Source(
        "Transformers vision and audio towers", f"models/{folder}/configuration_{folder}.py, modeling_*.py", "5.24.0"
    )
    return Tower(
        tuple(kinds.split()), (hidden[0], int(hidden[1])), (layers[0], int(layers[1])), (width[0], width[1]), attention,
        matrices, source,
    )  # fmt: skip


_NAMES = ("hidden_size", "num_hidden_layers", "intermediate_size")
_DEPTH = ("hidden_size", "depth", "intermediate_size")
_ROWS = (
    _row("clip_vision_model", (768, 12, 3072), _NAMES),
    _row("siglip_vision_model", (768, 12, 3072), _NAMES),
    _row("pixtral", (1024, 24, 4096), _NAMES, 3),
    _row("internvl_vision", (1024, 24, 4096), _NAMES),
    _row("idefics3_vision idefics3", (1152, 12, 3072), _NAMES),
    _row("smolvlm_vision smolvlm", (1152, 12, 3072), _NAMES),
    _row("llama4_vision_model", (768, 34, 5632), _NAMES),
    _row("qwen2_vl_vision qwen2_vl", (1280, 32, 4), ("embed_dim", "depth", "mlp_ratio")),
    _row("qwen2_5_vl_vision qwen2_5_vl", (3584, 32, 3420), _DEPTH, 3),
    _row("qwen3_5_vision qwen3_5 qwen3_5_moe_vision qwen3_5_moe", (1152, 27, 4304), _DEPTH),
    _row("qwen3_vl_vision qwen3_vl qwen3_vl_moe_vision qwen3_vl_moe", (1152, 27, 4304), _DEPTH),
    _row("gemma4_vision", (768, 16, 3072), _NAMES, 3),
    # of sound: two feed-forwards; beside the attention's five matrices three of a convolution's linear layers
    _row("gemma4_audio", (1024, 12, 4), ("hidden_size", "num_hidden_layers", "feed-forward ratio"), 4, 8),
)
TOWERS: dict[str, Tower] = {kind: row for row in _ROWS for kind in row.kinds}
