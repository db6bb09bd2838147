"""The software of a run, as far as rules ask for it: fused kernel sets and releases of packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainledger.facts.kernel_sets import UNKNOWN_DEVICE, Multiprocessors
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.ledger.mega import Mega

LIGER, FOAK = "liger", "foak"
TILED = "tiled"  # MLPs, by tiles of the sequence
WHOLE_LOSS = "whole loss"  # one compiled kernel makes the loss over all logits
DEEPSPEED = "deepspeed"


@dataclass(frozen=True, slots=True)
class Software:
    """Names of fused kernel sets, releases by package, the model's family, the device's multiprocessors, whether the
    model is asked for its keys and values (`use_cache`), the plan's framework, whether it compiles, and whether it
    offloads activations, how Megatron-Core runs its layers (None: it does not), and the ranks
    that routed experts and the sequence are spread over; whether the model was put on the device whole (`device_map`)
    before a strategy takes it."""

    kernels: frozenset[str] = frozenset()
    releases: Mapping[str, str] = field(default_factory=dict)
    family: str = ""
    device: Multiprocessors = UNKNOWN_DEVICE
    caches: bool = True
    framework: str = ""
    compiled: bool = False
    offloads: bool = False
    mega: Mega | None = None
    experts: int = 1
    context: int = 1
    placed: bool = False

    @property
    def tiled(self) -> bool:
        """Whether MLPs run in tiles of the sequence."""
        return TILED in self.kernels

    @property
    def fetches(self) -> bool:
        """Whether the inputs of recomputed layers wait in the host's memory, copied there and back by the checkpoint's
        own function, as a script around DeepSpeed does it."""
        return self.offloads and self.framework == DEEPSPEED

    @property
    def stashes(self) -> bool:
        """Whether inputs of layers leave as they are packed for backward, some of them later (torchtune, TRL)."""
        return self.offloads and not self.fetches

    @property
    def exchanges(self) -> bool:
        """Whether ranks exchange parts of the sequence for heads around attention (DeepSpeed's Ulysses)."""
        return self.context > 1 and self.framework != TORCHTITAN

    def release(self, *names: str) -> str:
        """The release of the first of these packages that is named; empty where none is."""
        return next((self.releases[name] for name in names if self.releases.get(name)), "")

    @property
    def liger(self) -> str:
        """The release of Liger's kernels; fms-acceleration carries a copy of an early one of its own."""
        return "0" if FOAK in self.kernels else self.release("liger-kernel", "liger")
