"""PEFT: what its releases run, the modules they adapt by default, and which heads they leave alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least

LAYER = "peft/tuners/lora/layer.py"


def _lora(read: str) -> Source:
    return Source("PEFT LoRA layers", LAYER, read)


@dataclass(frozen=True, slots=True)
class LoraForward:
    """How a release adds the low-rank product to the layer's own result: `in_place`, without a cast of the sum; or out
    of place in the wider dtype, cast back to the result's. `since`: the first release read that does so."""

    since: str
    in_place: bool
    source: Source


LORA_FORWARD: tuple[LoraForward, ...] = (
    LoraForward("0.9.0", False, _lora("0.9.0 to 0.21.2")),
    LoraForward("", True, _lora("0.4.0 to 0.8.2")),
)


@dataclass(frozen=True, slots=True)
class DoraForward:
    """Whether a release `reuses` the layer's own product where nothing is dropped from its input, or makes it again."""

    since: str
    reuses: bool
    source: Source


DORA_FORWARD: tuple[DoraForward, ...] = (
    DoraForward("0.14.0", True, Source("PEFT DoRA", "peft/tuners/lora/dora.py", "0.14.0 to 0.21.2")),
    DoraForward("", False, Source("PEFT DoRA", "peft/tuners/lora/dora.py", "0.12.0, 0.13.2")),
)
DORA_SINCE = "0.12.0"  # earlier releases make the product of both factors without an identity matrix


@dataclass(frozen=True, slots=True)
class AdapterDtype:
    """Since this release adapters of 16-bit layers are cast to fp32 unless `autocast_adapter_dtype` is false; before,
    they had the dtype of the layer's own weight."""

    since: str
    source: Source


ADAPTER_DTYPE = AdapterDtype("0.12.0", Source("PEFT get_peft_model", "peft/mapping_func.py", "0.11.1, 0.12.0"))


@dataclass(frozen=True, slots=True)
class InputGradients:
    """Since this release of Transformers `gradient_checkpointing_enable` makes the embedding's output need a gradient
    in every text model; before, PEFT asks for it where it wraps a model that recomputes."""

    since: str
    source: Source


INPUT_GRADIENTS = InputGradients(
    "5.0", Source("Transformers gradient checkpointing", "transformers/modeling_utils.py", "4.48.1, 5.24.0")
)


@dataclass(frozen=True, slots=True)
class ScaledRows:
    """Since this release the embeddings of these families scale their rows in their own module; before, in the model's
    forward, but for those that always did."""

    since: str
    always: tuple[str, ...]
    source: Source


SCALED_ROWS = ScaledRows(
    "5.0",
    ("gemma3_text",),
    Source(
        "Transformers Gemma", "transformers/models/gemma*/modeling_gemma*.py, ScaledWordEmbedding", "4.48.1, 5.24.0"
    ),
)


def scales_inside(family: str, transformers: str) -> bool:
    """Whether a model's embedding scales its rows in its own module, in this release of Transformers."""
    return family in SCALED_ROWS.always or at_least(transformers or None, SCALED_ROWS.since)


Since = TypeVar("Since", LoraForward, DoraForward)


def of_release(rows: tuple[Since, ...], release: str) -> Since:
    """The first row that a release has reached; an unknown release counts as the newest."""
    return next(row for row in rows if at_least(release or None, row.since))


TARGETS_SOURCE = Source(
    "PEFT default target modules",
    "peft/utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING",
    "0.2.0 to 0.21.2",
)


@dataclass(frozen=True, slots=True)
class DefaultTargets:
    """Modules that LoRA adapts in models of these types where no targets are given, since a release."""

    model_types: tuple[str, ...]
    targets: tuple[str, ...]
    since: str
    source: Source


def _targets(model_types: str, targets: str, since: str = "") -> DefaultTargets:
    return DefaultTargets(tuple(model_types.split()), tuple(targets.split()), since, TARGETS_SOURCE)


DEFAULT_TARGETS: tuple[DefaultTargets, ...] = (
    _targets("llama mistral opt gptj gpt_neo stablelm bart", "q_proj v_proj"),
    _targets("mixtral", "q_proj v_proj", "0.8.2"),
    _targets("gemma", "q_proj v_proj", "0.9.0"),
    _targets("qwen2", "q_proj v_proj", "0.12.0"),
    _targets("gemma2", "q_proj v_proj", "0.13.2"),
    _targets("qwen3", "q_proj v_proj", "0.16.0"),
    _targets("gemma3_text llama4_text", "q_proj v_proj", "0.17.1"),
    _targets("phi", "q_proj v_proj fc1 fc2", "0.8.2"),
    _targets("bloom gpt_neox falcon chatglm", "query_key_value"),
    _targets("gpt2 gpt_bigcode", "c_attn"),
    _targets("bert roberta electra", "query value"),
)
LORA_KINDS = ("lora", "dora")
