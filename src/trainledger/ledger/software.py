"""The software of a run, as far as rules ask for it: fused kernel sets and releases of packages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trainledger.facts.kernel_sets import UNKNOWN_DEVICE, Multiprocessors
from trainledger.facts.torchtitan import COMPONENTS, compiles_loss
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtune import BOUND_LOSS
from trainledger.facts.trainer import NOISE, TRAINER_BATCH
from trainledger.ledger.mega import Mega
from trainledger.plan.engines import looks_for_unused
from trainledger.plan.schema import Plan

LIGER, FOAK = "liger", "foak"
TILED = "tiled"  # MLPs, by tiles of the sequence
WHOLE_LOSS = "whole loss"  # one compiled kernel makes the loss over all logits
NOISED = "noised"  # the Trainer adds noise to the embedding's rows
COPIED_OUTPUTS = "copied outputs"  # DistributedDataParallel hands out clones of the model's outputs
DEEPSPEED = "deepspeed"
SCRIPTS = ("transformers", "torch")  # frameworks whose models PEFT adapts, in a script of one's own or by the Trainer


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
    def quiet(self) -> Software:
        """The same out of training, where no noise is added."""
        return replace(self, kernels=self.kernels - {NOISED})

    @property
    def clones(self) -> bool:
        """Whether the model's outputs are cloned as its forward returns."""
        return COPIED_OUTPUTS in self.kernels

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

    @property
    def adapts(self) -> bool:
        """Whether PEFT makes adapters on the device, where the model lies already: a script's, or one that was loaded
        there. The Trainer moves model and adapters from the host together."""
        return self.framework in SCRIPTS and (self.placed or not self.release(TRAINER_BATCH.package))

    def release(self, *names: str) -> str:
        """The release of the first of these packages that is named; empty where none is."""
        return next((self.releases[name] for name in names if self.releases.get(name)), "")

    @property
    def liger(self) -> str:
        """The release of Liger's kernels; fms-acceleration carries a copy of an early one of its own."""
        return "0" if FOAK in self.kernels else self.release("liger-kernel", "liger")


def kernels_of(plan: Plan) -> frozenset[str]:
    """The plan's fused kernel sets, and what besides is done otherwise than the model's own code does it."""
    stack = plan.stack
    said = {
        TILED: plan.parallel.options.get("tiled_mlp"),
        COPIED_OUTPUTS: looks_for_unused(plan),
        WHOLE_LOSS: compiles_whole_loss(plan),
        NOISED: stack.framework in NOISE.frameworks and stack.options.get(NOISE.option),
    }
    return frozenset((*stack.kernels, *(name for name, holds in said.items() if holds)))


def compiles_whole_loss(plan: Plan) -> bool:
    """Whether one compiled kernel makes the loss over all logits: torchtitan's components say, or its version where
    they are left out; of torchtune's recipes those that run what they compile."""
    stack = plan.stack
    if stack.framework == TORCHTITAN:
        given = components_of(plan)
        return COMPONENTS.loss in given if given is not None else _by_version(plan)
    return bool(stack.compile) and BOUND_LOSS.holds(plan.task, plan.adapter is not None, plan.parallel.world)


def _by_version(plan: Plan) -> bool:
    return bool(plan.stack.compile) and compiles_loss(plan.stack.versions.get(TORCHTITAN, ""))


def components_of(plan: Plan) -> tuple[str, ...] | None:
    """What torchtitan compiles as the plan says it (`stack.options.compile.components`); None where it does not."""
    section = plan.stack.options.get(COMPONENTS.section)
    given = section.get(COMPONENTS.key) if isinstance(section, dict) else None
    return None if given is None else tuple(given)
