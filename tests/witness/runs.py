"""Runs of the product's tracer over small models, and what the comparisons read off them."""

from __future__ import annotations

import gc
import warnings
from ast import literal_eval
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any
from unittest.mock import patch

from tests.plans import plan_of
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.live import plan_run
from trainledger.evidence.trace.live.attention import AttentionSite
from trainledger.evidence.trace.live.session import Where, where_of
from trainledger.evidence.trace.record import Birth, Record
from trainledger.facts.allocator import CUDA
from trainledger.ledger.frame import Setting
from trainledger.ledger.run import run_of
from trainledger.plan.schema import Plan

VERSIONS = {"torch": "2.13.0", "transformers": "5.24.0"}
RECOMPUTE: dict[str, Any] = {
    "none": "none",
    "full": {"kind": "full", "reentrant": False},
    "full-reentrant": {"kind": "full", "reentrant": True},
}
# The word for attention and the architecture under which PyTorch runs a kernel wherever it can.
KERNELS = {"flash": ("sdpa", "sm80"), "cudnn": ("sdpa", "sm90"), "efficient": ("mem-efficient", "sm80"),
           "math": ("math", "sm80"), "eager": ("eager", "sm80")}  # fmt: skip
NOT_WORDS = ("math",)  # which the tracer knows, and a plan does not say
INSIDE = "kernel: "  # begins the name of what lives inside a kernel only


@dataclass(frozen=True)
class Case:
    """One run, and which layer of it is compared. `prefix` is the layers' path with its last dot; `kernel`: the one
    that attention prefers (see KERNELS)."""

    prefix: str = "model.layers."
    layer: int = 1
    batch: int = 1
    sequence: int = 32
    weights: str = "bf16"
    autocast: str | None = None
    kernel: str = "flash"
    recompute: str = "none"
    accumulation: int = 1
    steps: int = 1
    optimizer: str = "sgd"  # the quickest
    implementation: str = "foreach"
    clip: float | None = None

    def plan(self, config: dict[str, Any]) -> Plan:
        """The run as a plan."""
        word, _ = KERNELS[self.kernel]
        precision = {"weights": self.weights, "compute": self.autocast or self.weights, "gradients": self.weights}
        return plan_of(
            config,
            precision={**precision, "autocast": self.autocast is not None, "grad_scaler": False},
            optimizer={"name": self.optimizer, "implementation": self.implementation, "grad_clip": self.clip},
            batch={"micro_batch": self.batch, "sequence": self.sequence, "accumulation": self.accumulation},
            stack={
                "versions": VERSIONS,
                "recompute": RECOMPUTE[self.recompute],
                "attention": "sdpa" if word in NOT_WORDS else word,
                "options": {"keep_outputs": True, "batch_tensors": ["input_ids", "labels"]},
            },
        )

    def setting(self, config: dict[str, Any]) -> Setting:
        """The run in the ledger's terms."""
        word, architecture = KERNELS[self.kernel]
        return replace(run_of(self.plan(config), architecture).setting, attention=word)

    def where(self, plan: Plan) -> Where:
        """The run's place in the tracer's terms."""
        word, architecture = KERNELS[self.kernel]
        site = AttentionSite(word, VERSIONS["torch"], architecture)
        return replace(where_of(job_of(plan)), site=site)


def record_of(config: dict[str, Any], case: Case) -> Record:
    """The run's record; the last few are kept for the comparison of another of their parts."""
    return _record(repr(sorted(config.items())), replace(case, prefix="", layer=0))


@lru_cache(maxsize=4)
def _record(config: str, case: Case) -> Record:
    plan = case.plan(dict(literal_eval(config)))
    return traced(plan, case.where(plan), case.steps)


def traced(plan: Plan, where: Where, steps: int = 2) -> Record:
    """The record of a run of that many steps."""
    settle()
    with warnings.catch_warnings(), patch.object(plan_run, "STEPS", range(1, steps + 1)):
        warnings.simplefilter("ignore")
        return plan_run.run_plan(plan, where)


@cache
def settle() -> None:
    """Leave what was imported out of the collection that begins each run: it would take half of a small one's time."""
    import transformers  # noqa: F401

    gc.freeze()


@dataclass(frozen=True)
class Seen:
    """A birth (size > 0) or death (size < 0), rounded bytes, of what a trace says of it."""

    size: int
    birth: Birth

    @property
    def inside(self) -> bool:
        """Whether it lives inside a kernel only, or is cuBLAS's own workspace."""
        return self.birth.op.startswith(INSIDE) or self.birth.account == "workspace"


def seen(record: Record, phase: str) -> list[Seen]:
    """Events of a phase (`forward`, `loss`, ...) of the last step."""
    last = record.stretches[-1].moment.partition(":")[0]
    wanted = f"{last}: {phase}"
    return [one for name, events in record.stretches if name == wanted for one in happened(record, events)]


def happened(record: Record, events: Iterable[int]) -> Iterator[Seen]:
    """A stretch's events with what is known of each."""
    for event in events:
        birth = record.births[abs(event) - 1]
        size = CUDA.rounded(birth.size)
        yield Seen(size if event > 0 else -size, birth)
