"""Keys of the plan that say what is trained: adapter, quantization, precision, optimizer."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from trainledger.plan.names import (
    AdapterKind,
    Compute,
    Float,
    Implementation,
    QuantizationKind,
    Reduced,
    StateName,
    Stored,
)
from trainledger.plan.types import (
    AdapterRank,
    Bool,
    Dropout,
    GroupSize,
    Norm,
    OptimizerName,
    Parameters,
    Section,
    Targets,
    Text,
)


class Adapter(Section):
    """Trained weights beside a frozen model."""

    kind: AdapterKind = Field(description="The method: LoRA and its relatives, prompts, or a subset of tokens.")
    r: AdapterRank = Field(None, description="Rank of the low-rank factors.")
    targets: Targets = Field(None, description="Names of the modules that get an adapter, or `all-linear`.")
    dtype: Reduced = Field("fp32", description="Element type of the adapter's weights.")
    dropout: Dropout = Field(0.0, description="Dropout probability on the adapter's input.")
    train_extra: tuple[Text, ...] = Field((), description="Modules that are trained whole beside the adapter.")
    trainable_params: Parameters = Field(
        None, description="Number of trained weights, where the source of the plan states it."
    )
    options: dict[str, Any] = Field(default_factory=dict, description="The method's own settings under PEFT's names.")


class Quantization(Section):
    """How frozen weights are stored in fewer bits."""

    kind: QuantizationKind = Field(description="The storage format.")
    double: Bool = Field(False, description="Whether the block scales are quantised too.")
    group_size: GroupSize = Field(None, description="Weights per scale, for GPTQ and AWQ; -1: all inputs.")


class Fp8(Section):
    """8-bit matrix products, in the framework's own words."""

    recipe: Text | None = Field(None, description="How scales are chosen (tensorwise, rowwise, blockwise, ...).")
    format: Text | None = Field(None, description="Element format of the forward and backward products (e4m3, hybrid).")
    all_gather: Bool | None = Field(None, description="Whether sharded weights are gathered in 8 bits.")
    param_gather: Bool | None = Field(None, description="Whether the distributed optimizer gathers weights in 8 bits.")
    force_recompute_weight_in_bwd: Bool | None = Field(
        None, description="Whether the 8-bit weight is remade in backward."
    )
    modules: tuple[Text, ...] | None = Field(None, description="Modules whose products run in 8 bits.")
    kernels: Text | None = Field(None, description="The kernel set that runs the casts.")


class Precision(Section):
    """Element types of weights, products, gradients and copies."""

    weights: Float = Field("bf16", description="The resident weights that the optimizer's step leaves behind.")
    compute: Compute = Field("bf16", description="What matrix products read.")
    autocast: Bool = Field(False, description="Whether torch.autocast keeps a cast copy of each weight during forward.")
    gradients: Reduced = Field("bf16", description="Gradients of what is trained.")
    main_gradients: Reduced | None = Field(None, description="A second gradient buffer beside the gradients, or null.")
    reduce: Reduced | None = Field(
        None, description="Element type in which gradients are reduced; null when nothing is."
    )
    master: Reduced | None = Field(None, description="The copy of the weights that the optimizer updates, or null.")
    norms: Reduced | None = Field(None, description="Norm weights, where they differ from the other weights.")
    grad_scaler: Bool = Field(False, description="Whether the loss is scaled, as fp16 needs.")
    fp8: Fp8 | None = Field(None, description="Settings of 8-bit products.")


class Optimizer(Section):
    """The optimizer and the states it keeps."""

    name: OptimizerName = Field("adamw", description="The optimizer.")
    implementation: Implementation | None = Field(
        None, description="How its step runs; null where there is only one way."
    )
    in_backward: Bool = Field(False, description="Whether each weight steps as soon as its gradient exists.")
    states: dict[StateName, Stored] = Field(
        default_factory=dict, description="Element types of states that differ from the implementation's rule."
    )
    grad_clip: Norm = Field(None, description="Largest gradient norm; null means no clipping.")
    options: dict[str, Any] = Field(default_factory=dict, description="The optimizer's own settings.")
