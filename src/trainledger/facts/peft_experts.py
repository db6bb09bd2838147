"""PEFT on experts whose matrices Transformers stacks: what names of before mean, and how releases adapt a parameter."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Renamed:
    """Names that targets have for what were linear layers before Transformers stacked them: the parameter that each is
    a part of since, and the names that make up one parameter, which are adapted together or not at all."""

    kinds: tuple[str, ...]
    names: tuple[tuple[str, str], ...]
    together: tuple[tuple[str, tuple[str, ...]], ...]
    source: Source


_SOURCE = Source(
    "PEFT mixtures of experts",
    "peft/utils/transformers_weight_conversion.py, _convert_peft_config_moe; transformers/conversion_mapping.py",
    "0.19.1 to 0.21.2; 5.24.0",
)
# by model type; PEFT converts no targets of other types (Qwen2-MoE itself, Qwen3.5, gpt-oss, Llama 4)
RENAMED: tuple[Renamed, ...] = (
    Renamed(
        ("mixtral", "minimax_m2"),
        (("gate", "gate.weight"), ("w1", "gate_up_proj"), ("w3", "gate_up_proj"), ("w2", "down_proj")),
        (("gate_up_proj", ("w1", "w3")),),
        _SOURCE,
    ),
    Renamed(
        (
            "qwen3_moe",
            "olmoe",
            "deepseek_v2",
            "deepseek_v3",
            "kimi_k2",
            "glm4_moe",
            "glm4_moe_lite",
            "dots1",
            "solar_open",
            "qwen3_next",
        ),
        (
            ("gate", "gate.weight"),
            ("gate_proj", "gate_up_proj"),
            ("up_proj", "gate_up_proj"),
            ("down_proj", "down_proj"),
        ),
        (("gate_up_proj", ("gate_proj", "up_proj")),),
        _SOURCE,
    ),
)


@dataclass(frozen=True, slots=True)
class Finder:
    """A front end that looks for a model's linear layers itself, where all are meant, and hands PEFT a list of their
    names: stacked experts are not among them."""

    package: str
    source: Source


FINDERS: tuple[Finder, ...] = (
    Finder("axolotl", Source("Axolotl's targets", "axolotl/loaders/adapter.py, find_all_linear_names", "0.18.0")),
    Finder(
        "llamafactory",
        Source("LLaMA-Factory's targets", "llamafactory/model/model_utils/misc.py, find_all_linear_modules", "0.9.6"),
    ),
    Finder("ms-swift", Source("ms-swift's targets", "swift/utils/transformers_utils.py, find_all_linears", "4.6")),
)


def renamed(kind: str) -> Renamed | None:
    """The row of a model type; None where PEFT converts none of its targets."""
    return next((row for row in RENAMED if kind in row.kinds), None)


@dataclass(frozen=True, slots=True)
class Since:
    """A release from which on PEFT does something."""

    release: str
    source: Source


def _layer(read: str) -> Source:
    return Source("PEFT ParamWrapper", "peft/tuners/lora/layer.py", read)


LISTS = Since("0.19", _SOURCE)  # it reads lists of such names as parameters
TEXTS = Since("0.20", _SOURCE)  # and patterns and `all-linear`, which 0.19 takes letter by letter
# the adapted parameter is made once for a call of its module; before, once each time that the module reads it
PARAMETERS = Since("0.19", _layer("0.17.1 to 0.19.1"))
FACTORS = Since("0.21", _layer("0.20.0 to 0.21.2"))  # by one product over the experts; before, from a whole summand
DEFAULT_SCALE = 8  # LoraConfig.lora_alpha (peft/tuners/lora/config.py, 0.21.2)
