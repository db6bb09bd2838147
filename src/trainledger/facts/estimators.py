"""Memory estimators of other tools: their coefficients by release, so that their numbers can be shown beside ours."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class ZeroStates:
    """DeepSpeed's ZeRO-2 estimator from a release on. Bytes per parameter: on every device, and divided by all; on the
    host per device, and at least, where the optimizer is offloaded; on the device then; times `factor` on the host."""

    since: str
    whole: int
    divided: int
    host: int
    least: int
    offloaded: int
    factor: float
    source: Source


def _zero2(since: str, whole: int, divided: int) -> ZeroStates:
    where = Source(
        "DeepSpeed, estimate_zero2_model_states_mem_needs",
        "deepspeed/runtime/zero/stage_1_and_2.py",
        f"{since or '0.9.5'} on (#5099)",
    )
    return ZeroStates(since, whole, divided, 4, 16, 2, 1.5, where)


ZERO2_STATES: tuple[ZeroStates, ...] = (_zero2("0.14.3", 2, 18), _zero2("", 4, 16))


@dataclass(frozen=True, slots=True)
class Zero3States:
    """DeepSpeed's ZeRO-3 estimator. Bytes per parameter: of the largest module, gathered; divided by all devices with
    nothing offloaded, and with the optimizer offloaded; on the host with everything offloaded, with the optimizer; per
    device where the model is not built in parts; times `factor` on the host."""

    largest: int
    divided: int
    weights: int
    both: int
    optimizer: int
    unbuilt: int
    factor: float
    source: Source


ZERO3_STATES = Zero3States(
    4,
    18,
    2,
    18,
    16,
    4,
    1.5,
    Source("DeepSpeed, estimate_zero3_model_states_mem_needs", "deepspeed/runtime/zero/stage3.py", "0.9.5 to 0.19.8"),
)


@dataclass(frozen=True, slots=True)
class Loading:
    """accelerate's `estimate-memory`. Of the model's own size: what part each dtype's takes; how many times the fp32
    size training with Adam takes, from a release on, by dtype (none: not shown), and before it of the dtype's size; how
    many bools of a buffer it counts as one byte."""

    parts: tuple[tuple[str, int], ...]
    since: str
    training: tuple[tuple[str, int], ...]
    before: int
    bools: int
    source: Source


LOADING = Loading(
    (("float32", 1), ("float16", 2), ("int8", 4), ("int4", 8)),
    "0.30",
    (("float32", 4), ("float16", 2)),
    4,
    8,
    Source(
        "accelerate estimate-memory",
        "accelerate/commands/estimate.py, utils/modeling.py (dtype_byte_size)",
        "0.24 to 1.15",
    ),
)

LEFT_OUT = (
    "activations, logits and what the loss makes of them",
    "reduce buckets and their flat copies, gathers under way and fetched ahead",
    "what clipping and the optimizer's step make for a moment",
    "workspaces, ends of blocks, the allocator's cache, the process's context and communicators",
)
STATES_TOO = ("gradients and optimizer states, but for a rule of thumb",)
