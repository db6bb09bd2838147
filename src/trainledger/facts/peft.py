"""PEFT: what its releases run, the modules they adapt by default, and which heads they leave alone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least

ADAPTERS = Source("PEFT adapters", "peft/tuners/*/layer.py, peft/utils/other.py", "0.21.2")


class Cast(StrEnum):
    """Where a layer casts what it adds back to its own result's dtype."""

    NEVER = "never: the sum is made in place"
    BEFORE_SCALE = "the product, before it is scaled"
    AFTER_SCALE = "the product, after it is scaled"
    AFTER_SUM = "the sum"


@dataclass(frozen=True, slots=True)
class LoraLayer:
    """How PEFT adds the low-rank product to the result of a layer of one kind, since a release.

    `casts_in_autocast`: the input is cast to the adapter's dtype inside autocast too; `copies`: the layer's own result
    is copied first; `in_place`: the sum overwrites that result; `names`: the product keeps a name until the end.
    """

    layers: tuple[str, ...]
    since: str
    casts_in_autocast: bool
    copies: bool
    in_place: bool
    names: bool
    cast: Cast
    source: Source


def _lora(file: str, read: str) -> Source:
    return Source("PEFT LoRA layers", f"peft/tuners/lora/{file}.py", read)


DENSE = "dense"
_BNB_4, _BNB_8, _GPTQ = ("nf4", "fp4"), ("int8",), ("gptq4", "gptq8")
_TORCHTUNE = Source("torchtune LoRALinear", "torchtune/modules/peft/lora.py", "2024-05, 2024-11")
_LITGPT = Source("LitGPT LoRALinear", "litgpt/lora.py", "2023-10 to 0.5.13")
LORA_LAYERS: tuple[LoraLayer, ...] = (
    LoraLayer(("litgpt",), "", False, False, False, True, Cast.NEVER, _LITGPT),
    LoraLayer(("torchtune",), "", False, False, False, True, Cast.NEVER, _TORCHTUNE),
    LoraLayer((DENSE, "fp8"), "0.9.0", True, False, False, False, Cast.AFTER_SUM, _lora("layer", "0.9.0 to 0.21.2")),
    LoraLayer((DENSE, "fp8"), "", True, False, True, False, Cast.NEVER, _lora("layer", "0.4.0 to 0.8.2")),
    LoraLayer(_BNB_4, "0.10.0", False, True, False, True, Cast.AFTER_SCALE, _lora("bnb", "0.10.0 to 0.21.2")),
    LoraLayer(_BNB_4, "0.9.0", False, True, False, True, Cast.BEFORE_SCALE, _lora("bnb", "0.9.0")),
    LoraLayer(_BNB_4, "", False, True, True, True, Cast.BEFORE_SCALE, _lora("bnb", "0.4.0 to 0.8.2")),
    LoraLayer(_BNB_8, "0.10.0", False, False, False, True, Cast.AFTER_SCALE, _lora("bnb", "0.10.0 to 0.21.2")),
    LoraLayer(_BNB_8, "0.9.0", False, False, False, True, Cast.BEFORE_SCALE, _lora("bnb", "0.9.0")),
    LoraLayer(_BNB_8, "", False, False, True, True, Cast.BEFORE_SCALE, _lora("bnb", "0.4.0 to 0.8.2")),
    LoraLayer(_GPTQ, "0.16.0", True, False, False, False, Cast.AFTER_SUM, _lora("gptq", "0.16.0 to 0.21.2")),
    LoraLayer(_GPTQ, "", False, False, True, True, Cast.BEFORE_SCALE, _lora("gptq", "0.9.0 to 0.15.2")),
    LoraLayer(("awq4",), "", False, False, False, True, Cast.BEFORE_SCALE, _lora("awq", "0.9.0 to 0.21.2")),
)


def lora_layer(kind: str, release: str) -> LoraLayer:
    """The row of a kind of layer (dense, or of quantisation) in a release; an unknown release counts as the newest."""
    return next(row for row in LORA_LAYERS if kind in row.layers and at_least(release or None, row.since))


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
class OwnCheckpoints:
    """A front end that puts a function of its own around each layer's checkpoint: it recomputes only layers of which
    something is trained, and makes the input of each need a gradient. The embedding's rows are left to PEFT."""

    package: str
    source: Source


OWN_CHECKPOINTS = OwnCheckpoints(
    "llamafactory",
    Source(
        "LLaMA-Factory, recompute of trained layers",
        "llamafactory/model/model_utils/checkpointing.py, get_custom_gradient_checkpointing_func",
        "0.9.3, 0.9.6",
    ),
)


@dataclass(frozen=True, slots=True)
class Upcast:
    """A switch (`option`, of stack.options) under which weights that are trained are cast to fp32, and frozen ones stay
    as they are. DeepSpeed casts all of them back as it takes the model."""

    option: str
    source: Source


UPCAST = Upcast(
    "cast_trainable_params_to_fp32",
    Source("LLaMA-Factory, what is trained in float32", "llamafactory/model/adapter.py, init_adapter", "0.9.6"),
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


class Told(StrEnum):
    """How a layer's keys and values, made as one tensor, are told apart; the gradients that it leaves differ."""

    UNBOUND = "both at once: their gradients are stacked"
    SELECTED = "each by its number: a zero-filled gradient of both for each"
    SLICED = "both at once, of a slice: the stacked gradients are copied into a zero-filled one"


@dataclass(frozen=True, slots=True)
class PrefixCache:
    """Prefix tuning as it is written here: since this release of Transformers a cache copies the keys and values that
    it is made of, and is handed to the model, whose layers replace each by its concatenation with their own; since this
    release PEFT makes it in one step, and with a head dim that a model states."""

    peft: str
    transformers: str
    source: Source


PREFIX_CACHE = PrefixCache(
    "0.18",
    "4.56",
    Source(
        "PEFT prefix tuning, Transformers DynamicCache",
        "peft/peft_model.py, get_prompt; peft/utils/other.py; transformers/cache_utils.py, DynamicLayer.update",
        "0.18.0 to 0.21.2; 4.56.0, 5.13.1, 5.24.0",
    ),
)


@dataclass(frozen=True, slots=True)
class PrefixParts:
    """How a release of Transformers tells keys from values where it makes a cache of a prefix."""

    since: str
    told: Told
    source: Source


def _parts(since: str, told: Told, read: str) -> PrefixParts:
    return PrefixParts(
        since, told, Source("Transformers DynamicCache", "transformers/cache_utils.py, DynamicCache.__init__", read)
    )


PREFIX_PARTS: tuple[PrefixParts, ...] = (
    _parts("5.24", Told.SLICED, "5.24.0"),
    _parts("5.13", Told.SELECTED, "5.13.1"),
    _parts("", Told.UNBOUND, "4.56.0"),
)


@dataclass(frozen=True, slots=True)
class PrefixFamilies:
    """Families whose cache PEFT fills itself, layer by layer (`windows`: a layer with a window keeps no more than it),
    and those whose keys have not the heads that PEFT makes a prefix for."""

    windows: tuple[str, ...]
    other_heads: tuple[str, ...]
    source: Source


PREFIX_FAMILIES = PrefixFamilies(
    ("gemma2", "gemma3_text", "gemma4_text"),
    ("gpt_bigcode",),
    Source("PEFT get_prompt", "peft/peft_model.py; peft/utils/other.py, _prepare_prompt_learning_config", "0.21.2"),
)


def told_apart(family: str, transformers: str) -> Told:
    """How a prefix's keys are told from its values in this release of Transformers."""
    if family in PREFIX_FAMILIES.windows:
        return Told.UNBOUND
    return next(row.told for row in PREFIX_PARTS if at_least(transformers or None, row.since))


def reuses_product(release: str) -> bool:
    """Whether DoRA reads its layer's own product where nothing is dropped from the input, in this release."""
    return next(row.reuses for row in DORA_FORWARD if at_least(release or None, row.since))


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
    _targets("bert roberta xlm-roberta electra", "query value"),
)
LORA_KINDS = ("lora", "dora")
