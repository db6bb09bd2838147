"""The numbers behind the prices of advice: work of a step, traffic of a strategy, links; and how far advice goes."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import GB

OWN = Source("trainledger's own choice", "steps and bounds of a search, no measurement", "2026-11")


@dataclass(frozen=True, slots=True)
class Work:
    """Floating-point operations per weight and token of a forward (a multiply and an add); backward in forwards: of
    inputs' gradients, and of trained weights'; operations of attention per pair of tokens and channel of the heads, of
    which a causal mask needs the `causal` part."""

    forward: int
    inputs: int
    weights: int
    pair: int
    causal: float
    source: Source


WORK = Work(
    2, 1, 1, 4, 0.5,
    Source("PaLM, appendix B; Reducing Activation Recomputation, appendix A", "arXiv:2204.02311, 2205.05198", "2022"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Volume:
    """Elements that a rank sends of each weight: at every micro-batch, and at the end of a step."""

    micro: int
    step: int
    source: Source


TRAFFIC_SOURCE = Source(
    "ZeRO", "arXiv:1910.02054, section 7: 2 of each weight for stages 1 and 2, 3 for stage 3", "2020-05"
)
NONE, REDUCED = Volume(0, 0, TRAFFIC_SOURCE), Volume(0, 2, TRAFFIC_SOURCE)
GATHERED = Volume(2, 1, TRAFFIC_SOURCE)
VOLUMES: dict[str, Volume] = {
    "none": NONE, "ddp": REDUCED, "zero1": REDUCED, "zero2": REDUCED, "megatron-ddp": REDUCED,
    "megatron-distopt": REDUCED, "fsdp1-noshard": REDUCED, "zero3": GATHERED, "fsdp1": GATHERED, "fsdp2": GATHERED,
    "hsdp": GATHERED, "megatron-fsdp": GATHERED,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Reduced:
    """Tensor parallelism: sums over a group's ranks in each layer's forward and in its backward, each of a tensor of
    tokens x hidden; elements that a rank sends of each element, of a large group (a reduction and a gather)."""

    forward: int
    backward: int
    sent: int
    source: Source


TENSOR = Reduced(2, 2, 2, Source("Megatron-LM", "arXiv:1909.08053, section 3 and figure 4", "2019-09"))


@dataclass(frozen=True, slots=True)
class Link:
    """A link's bytes per second in one direction."""

    bandwidth: int
    name: str
    source: Source


HOST_LINK = Link(
    32 * GB,
    "PCIe 4.0 x16, peak",
    Source("PCI Express 4.0", "16 GT/s a lane, 16 lanes, 128b/130b: 31.5 GB/s", "2017-10"),
)


@dataclass(frozen=True, slots=True)
class Combined:
    """How far combinations go: of how many changes, from how many of the best singles, how many of them are estimated
    whole, and how many are shown. `nothing`: a saving below this share of the need is none."""

    most: int
    singles: int
    whole: int
    shown: int
    nothing: float
    source: Source


COMBINED = Combined(3, 9, 12, 8, 0.001, OWN)
