"""What a checkpoint's resume comes to, and what it is read from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

from trainledger.answer.checkpoint import Checkpoint
from trainledger.answer.resume_deepspeed import Converted
from trainledger.answer.resume_sliced import Reading
from trainledger.answer.saved import Holds, Saved
from trainledger.answer.saved import Written as Files
from trainledger.base.sources import Source
from trainledger.facts.phases import POLICY
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

WEIGHTS_ALONE = "safetensors"
EXPORTS = (WEIGHTS_ALONE, "trainer", "adapter", "torchtune")  # formats whose weights lie in such files


class Written(NamedTuple):
    """A checkpoint: who wrote it, its model, all of its files, what is in them."""

    plan: Plan
    model: Model
    checkpoint: Checkpoint
    saved: Saved

    @property
    def kind(self) -> str:
        """The format that resumes it."""
        return self.checkpoint.resume.name

    @property
    def source(self) -> Source:
        """Of its format."""
        return self.checkpoint.resume.source

    @property
    def files(self) -> tuple[Files, ...]:
        """Those of the plan's own model that a resume reads: weights beside DeepSpeed's and FSDP's are for others."""
        own = self.kind in EXPORTS
        found = (one for one in self.checkpoint.files if one.role == POLICY and one.what is not Holds.EXPORT)
        return tuple(one for one in found if own or not one.safetensors)

    @property
    def total(self) -> int:
        """Bytes of these files."""
        return sum(one.total for one in self.files)

    @property
    def weights(self) -> int:
        """Bytes of those that hold weights alone."""
        return sum(one.total for one in self.files if one.what is not Holds.OPTIMIZER)

    @property
    def whole(self) -> bool:
        """Whether the optimizer's states are among them."""
        return any(one.what in (Holds.OPTIMIZER, Holds.BOTH) for one in self.files)


@dataclass(frozen=True, slots=True)
class Resume:
    """How it is read; the ranks that read it; of the one that reads most: bytes, and how many files it opens; bytes of
    all ranks, and of the files; the most that one rank has in the host's memory at once; a conversion before it."""

    way: str
    ranks: int
    rank_bytes: int
    files: int
    total: int
    stored: int
    host: int
    source: Source
    conversion: Converted | None = None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, bytes."""
        made = self.conversion
        return {
            "way": self.way,
            "ranks": self.ranks,
            "rank_bytes": self.rank_bytes,
            "files": self.files,
            "total_bytes": self.total,
            "stored_bytes": self.stored,
            "host_bytes": self.host,
            "conversion": made and {"host_bytes": made.host, "written_bytes": made.written, "disk_bytes": made.disk},
            "source": str(self.source),
        }


def answered(way: str, other: Plan, written: Written, reading: Reading, source: Source) -> Resume:
    """The answer of a reading, whose `writers` are files."""
    ranks, stored = degrees(other).world, written.total
    return Resume(way, ranks, reading.most, reading.writers, reading.total, stored, reading.largest, source)
