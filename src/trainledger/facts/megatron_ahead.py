"""Megatron-FSDP: how far it gathers ahead, how much waits to be reduced, and what changed between its releases."""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least

FOLDER = "megatron/core/distributed/fsdp/src/megatron_fsdp"
_DAY = re.compile(r"20\d\d-\d\d-\d\d")


@dataclass(frozen=True, slots=True)
class Ahead:
    """The option that says how many elements are communicated at once, and its default: at least `least`, and `units`
    units' mean where weights are sharded. A gather is as far ahead as its `share` of them; all of them may wait to be
    reduced. `paired`: the option under which weights and gradients of `units` units are there at most."""

    option: str
    least: int
    units: int
    share: int
    paired: str
    source: Source


AHEAD = Ahead(
    "suggested_communication_unit_size", 1_000_000_000, 2, 2, "fsdp_double_buffer",
    Source(
        "Megatron-FSDP: weights gathered ahead, gradients that wait",
        f"{FOLDER}/megatron_fsdp.py, _init_fsdp_param_and_grad_buffer; param_and_grad_buffer.py, AllGatherPipeline, "
        "GradReducePipeline",
        "0.14 to 0.19",
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Changed:
    """Something that Megatron-FSDP does from a release on; on its main branch, from a day on."""

    release: str
    day: str
    source: Source

    def holds(self, version: str) -> bool:
        """Whether it does in this release of Megatron-Core, or on the day that its text has; an unknown one counts as
        newest."""
        day = _DAY.search(version)
        return day.group() >= self.day if day else at_least(version or None, self.release)


QUIET = Changed(
    "0.18", "2026-04-01",
    Source(
        "Megatron-FSDP: modules outside of layers gather nothing ahead once a backward has begun",
        f"{FOLDER}/megatron_fsdp.py, _root_pre_backward", "pull request 3991",
    ),
)  # fmt: skip
STAYING = Changed(
    "0.18", "2026-05-30",
    Source(
        "Megatron-FSDP: weights outside of layers stay gathered between steps",
        f"{FOLDER}/param_and_grad_buffer.py, AllGatherPipeline.reset", "pull request 4717",
    ),
)  # fmt: skip
