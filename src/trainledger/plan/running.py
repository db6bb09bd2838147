"""Keys of the plan that say how it runs: batch, parallel, offload, stack, device."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from trainledger.plan.names import (
    Attention,
    Loss,
    Movable,
    OffloadPlace,
    PlaceName,
    RecomputeKind,
    RecomputeMethod,
    Schedule,
    Strategy,
)
from trainledger.plan.text import shown
from trainledger.plan.types import (
    Accumulation,
    Bool,
    BoolOrDegree,
    Compile,
    Degree,
    DegreeOrNull,
    ExpertLoad,
    Framework,
    GlobalBatch,
    Kernel,
    Layers,
    LossTokens,
    MicroBatch,
    Section,
    Sequence,
    Size,
    Text,
    refusal,
)


class Batch(Section):
    """How many tokens one forward sees."""

    micro_batch: MicroBatch = Field(
        description="Sequences of one forward on one data-parallel rank (pairs or examples in preference training)."
    )
    sequence: Sequence = Field(description="Tokens of one sequence, padding included.")
    expert_load: ExpertLoad = Field(
        1.0, description="Load of the fullest expert: mean, worst, or a factor of the mean."
    )
    accumulation: Accumulation = Field(1, description="Micro-batches per optimizer step on one data-parallel rank.")
    loss_tokens: LossTokens = Field(
        None, description="Tokens of each sequence that count in the loss, where not all do."
    )
    global_batch: GlobalBatch = Field(
        None,
        alias="global",
        description="Sequences per optimizer step over all ranks: micro_batch x dp x accumulation.",
    )


class Parallel(Section):
    """How the work is spread over ranks."""

    strategy: Strategy = Field("none", description="What is replicated and what is sharded over data-parallel ranks.")
    world: Degree = Field(1, description="All ranks; left out, dp x tp x cp x pp.")
    dp: Degree = Field(1, description="Data-parallel degree of all kinds; left out, world / (tp x cp x pp).")
    shard: DegreeOrNull = Field(None, description="Ranks over which the strategy shards; null means dp.")
    tp: Degree = Field(1, description="Tensor-parallel degree.")
    sp: Bool = Field(False, description="Whether norms and residuals are sharded along the sequence within tp.")
    cp: Degree = Field(1, description="Context-parallel degree.")
    pp: Degree = Field(1, description="Pipeline-parallel degree.")
    schedule: Schedule | None = Field(None, description="The pipeline's schedule.")
    vpp: Degree = Field(1, description="Model chunks per pipeline rank.")
    ep: Degree = Field(1, description="Expert-parallel degree.")
    etp: DegreeOrNull = Field(
        None, description="Tensor-parallel degree of experts; null means the framework's default."
    )
    reshard_after_forward: BoolOrDegree = Field(
        True,
        description="Whether gathered weights are freed after their forward; a number: kept over that many ranks.",
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="The strategy's own settings under their own names."
    )


class Offload(Section):
    """What leaves the device's memory, and where to."""

    optimizer: OffloadPlace | None = Field(None, description="Place of the optimizer states.")
    params: OffloadPlace | None = Field(None, description="Place of the weights.")
    activations: OffloadPlace | None = Field(None, description="Place of saved activations.")
    places: dict[Movable, PlaceName] = Field(
        default_factory=dict,
        description="Kinds that lie elsewhere as they are, without a framework's staging: {optimizer_states: host}.",
    )


class Recompute(Section):
    """What is dropped in forward and remade in backward. A bare kind may stand for the mapping."""

    kind: RecomputeKind = Field("none", description="Nothing, whole layers, or a selection.")
    reentrant: Bool | None = Field(None, description="Whether the reentrant variant of the checkpoint function runs.")
    method: RecomputeMethod | None = Field(None, description="Layers in uniform groups, or the first ones of a stage.")
    num_layers: Layers = Field(None, description="Layers per group (uniform) or per stage (block).")
    modules: tuple[Text, ...] | None = Field(None, description="Names of the modules that are recomputed.")
    policy: Text | None = Field(None, description="`op` (by operation), `every 2nd layer`, or `memory budget 0.5`.")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        return {"kind": value} if isinstance(value, str) else value


class Stack(Section):
    """The software that runs, and its switches that move memory."""

    framework: Framework = Field("transformers", description="The training framework.")
    versions: dict[Text, Text] = Field(default_factory=dict, description="Package versions, as text in quotes.")
    attention: Attention = Field("sdpa", description="The attention implementation; null when not known.")
    recompute: Recompute = Field(default_factory=Recompute, description="What backward remakes; null when not known.")
    loss: Loss = Field("full-fp32", description="How logits and loss are computed; null when not known.")
    kernels: tuple[Kernel, ...] = Field((), description="Fused kernel sets in use.")
    compile: Compile = Field(False, description="torch.compile: whole model, each block, or not; null when not known.")
    allocator: dict[str, Any] = Field(default_factory=dict, description="Settings of PyTorch's caching allocator.")
    env: dict[str, Any] = Field(default_factory=dict, description="Environment variables that move memory.")
    options: dict[str, Any] = Field(default_factory=dict, description="The framework's own switches that move memory.")


class MemoryTier(Section):
    """A further memory that a device can place tensors in."""

    name: Text = Field(description="What the memory is called.")
    bytes: Size = Field(description="How much of it there is.")
    bandwidth: Size = Field(None, description="Bytes per second; null when not known.")
    shared_by: Degree = Field(1, description="How many devices share it.")
    place: PlaceName | None = Field(None, description="What kind of memory it is; null means what its name says.")


class Device(Section):
    """The device of every rank. A bare name may stand for the mapping."""

    name: Text | None = Field(None, description="A named device, or a name of your own beside its memory.")
    memory: Size = Field(None, description="Usable bytes, where they are not those of the named device.")
    bandwidth: Size = Field(None, description="Bytes per second of the device memory.")
    link: Size = Field(None, description="Bytes per second between device and host, each way.")
    architecture: Text | None = Field(None, description="Whose kernels run (sm90, ...); null means those of sm80.")
    tiers: tuple[MemoryTier, ...] = Field((), description="Further memories of a device of your own.")

    @model_validator(mode="before")
    @classmethod
    def _bare(cls, value: object) -> object:
        if isinstance(value, str) and value.strip():
            return {"name": value}
        if not isinstance(value, dict | Device):
            raise refusal(shown(value), "a device's name, or {name: ..., memory: ...}")
        if isinstance(value, dict) and not value:
            raise refusal("an empty mapping", "a device needs a name or a memory")
        return value
