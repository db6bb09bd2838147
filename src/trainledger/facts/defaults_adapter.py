"""Defaults of the adapter that depend on PEFT's release and on the model's type."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.default_row import GIVEN, DefaultRow, Follows
from trainledger.facts.default_words import PEFT, framework
from trainledger.facts.peft import ADAPTER_DTYPE, DEFAULT_TARGETS, LORA_KINDS, TARGETS_SOURCE
from trainledger.facts.peft_methods import METHODS

_GIVEN = ("adapter.kind", GIVEN)
_ZERO3 = ("parallel.strategy", ("zero3",))
_HALF = ("precision.weights", ("bf16", "fp16"))
LEFT = "0.19.3"  # since this release the engine casts no parameter of a model that was built under zero.Init
ENGINE = Source(
    "DeepSpeed, parameters cast by the engine",
    "deepspeed/runtime/engine.py, _configure_distributed_model, _cast_module_mixed_precision",
    "0.9.5 to 0.19.8",
)
ADAPTER_DTYPES = (
    DefaultRow(
        "adapter.dtype",
        Follows("precision.weights"),
        "ColossalChat's adapters are made like the weight",
        LOW_LEVEL.source,
        (_GIVEN, framework(LOW_LEVEL.framework)),
    ),
    DefaultRow(
        "adapter.dtype",
        Follows("precision.weights"),
        "copies of norms keep their dtype, which autocast_adapter_dtype leaves",
        Source("PEFT ln-tuning, _cast_adapter_dtype", "peft/tuners/ln_tuning/model.py", "0.21.2"),
        (("adapter.kind", ("ln-tuning",)),),
    ),
    DefaultRow(
        "adapter.dtype",
        Follows("precision.weights"),
        "autocast_adapter_dtype false: an adapter has its layer's dtype",
        PEFT,
        (("adapter.options.autocast_adapter_dtype", (False,)),),
    ),
    DefaultRow(
        "adapter.dtype",
        Follows("precision.weights"),
        "DeepSpeed's engine casts every parameter to its own dtype",
        ENGINE,
        (_GIVEN, ("parallel.strategy", ("zero1", "zero2")), _HALF),
    ),
    DefaultRow(
        "adapter.dtype",
        Follows("precision.weights"),
        "DeepSpeed's engine casts every parameter of a quantised model, which zero.Init does not build",
        ENGINE,
        (_GIVEN, _ZERO3, _HALF, ("quantization.kind", GIVEN)),
    ),
    DefaultRow(
        "adapter.dtype",
        "fp32",
        "adapters beside a model built under zero.Init stay as PEFT made them",
        ENGINE,
        (_GIVEN, _ZERO3, _HALF),
        (("deepspeed", LEFT), ("peft", ADAPTER_DTYPE.since)),
    ),
    DefaultRow(
        "adapter.dtype",
        Follows("precision.weights"),
        "DeepSpeed's engine casts every parameter to its own dtype",
        ENGINE,
        (_GIVEN, _ZERO3, _HALF),
    ),
    DefaultRow(
        "adapter.dtype",
        Follows("precision.weights"),
        "DeepSpeed's engine casts every parameter to its own dtype",
        ENGINE,
        (
            _GIVEN,
            framework("deepspeed"),
            ("parallel.strategy", ("none", "ddp")),
            _HALF,
        ),
    ),
    DefaultRow(
        "adapter.dtype",
        "fp32",
        "autocast_adapter_dtype casts 16-bit adapters to float32",
        PEFT,
        (_GIVEN,),
        (("peft", ADAPTER_DTYPE.since),),
    ),
    DefaultRow(
        "adapter.dtype",
        "fp32",
        "an adapter of a quantised layer stays float32",
        ADAPTER_DTYPE.source,
        (_GIVEN, ("quantization.kind", GIVEN)),
    ),
    DefaultRow(
        "adapter.dtype",
        Follows("precision.weights"),
        "an adapter has its layer's dtype",
        ADAPTER_DTYPE.source,
        (_GIVEN,),
    ),
)
RANKS = tuple(
    DefaultRow("adapter.r", row.rank, f"PEFT's default of {row.kind}", row.source, (("adapter.kind", (row.kind,)),))
    for row in METHODS.values()
    if row.rank
)
TARGETS = tuple(
    DefaultRow(
        "adapter.targets",
        list(row.targets),
        "PEFT's default for this model type",
        TARGETS_SOURCE,
        (("adapter.kind", LORA_KINDS), ("model.model_type", row.model_types)),
        (("peft", row.since),),
    )
    for row in DEFAULT_TARGETS
)
