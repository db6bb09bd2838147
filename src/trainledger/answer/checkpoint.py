"""What a checkpoint takes on disk: by file, by rank, in total, kept, and in time; what resuming elsewhere needs.

Bytes are those of tensors: headers, metadata, schedules and random states are not counted. No tensor is rounded.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trainledger.answer.check_acting import acts
from trainledger.answer.check_save import save_problems
from trainledger.answer.saved import RANK_0, Saved, Written, inner_format, saved_of
from trainledger.answer.saved_files import written
from trainledger.answer.saved_shards import staged
from trainledger.facts.checkpoints import FORMATS, MERGED, Format
from trainledger.facts.kernels import REFERENCE
from trainledger.facts.phases import CRITIC, POLICY
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.model.build import model_of
from trainledger.model.program import Model
from trainledger.model.valued import valued
from trainledger.plan.roles import role_plan
from trainledger.plan.schema import Plan

SHARDS = "fsdp-sharded"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One checkpoint. `resume`: the format that says what resumes it, where the named one writes another's files;
    `files`: by name, with who writes them; `rank_bytes`: what one rank writes at most; `kept`: how
    many there are at once at most, with the one that is being written; `seconds` at the plan's bandwidth (None: not
    given); `staged`: what one rank copies to the host where training goes on meanwhile."""

    format: Format
    resume: Format
    files: tuple[Written, ...]
    weights_only: int
    kept: int
    limit: int | None
    seconds: float | None
    staged: int
    notes: tuple[str, ...] = ()

    @property
    def total(self) -> int:
        """Bytes of all files."""
        return sum(one.total for one in self.files)

    @property
    def rank_bytes(self) -> int:
        """Bytes that the busiest rank writes."""
        return _busiest(self.files)

    @property
    def disk(self) -> int:
        """Bytes on disk when most checkpoints are there."""
        once = sum(one.total for one in self.files if one.once)
        return (self.total - once) * self.kept + once

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values, bytes."""
        return {
            "bytes": self.total,
            "weights_only_bytes": self.weights_only,
            "format": self.format.name,
            "rank_bytes": self.rank_bytes,
            "files": [
                {
                    "name": one.name, "role": one.role, "what": one.what.value, "bytes": one.bytes,
                    "count": one.count, "by": one.by, "once": one.once,
                }
                for one in self.files
            ],
            "kept": self.kept,
            "disk_bytes": self.disk,
            "seconds": self.seconds,
            "resume": {"same": self.resume.same, "other": self.resume.other},
            "notes": list(self.notes),
            "source": str(self.format.source),
        }  # fmt: skip


def checkpoint(plan: Plan, model: Model, ledger: Ledger) -> Checkpoint:
    """The checkpoint of a resolved plan, as its `save` section says, else as its framework writes it."""
    saved = saved_of(plan, model, ledger)
    save = plan.save
    beside = (replace(one, name=f"{CRITIC}: {one.name}", role=CRITIC) for one in _critic(plan))
    files = tuple(one for one in (*written(plan, saved), *beside) if one.bytes)
    limit = save.limit if save else None
    saves = save.saves if save else None
    notes = tuple(_notes(plan, saved))
    inner = FORMATS[inner_format(plan, saved.format)]
    own = [one for one in files if one.role == POLICY]
    copied = staged(plan, saved) if inner.name == SHARDS else _busiest(own)
    kept = _kept(limit, saves)
    read = sum(sum(layer) * count for layer, count in saved.merged) or saved.weights + saved.embeddings
    found = Checkpoint(FORMATS[saved.format], inner, files, read, kept, limit, None, copied, notes)
    if save and save.bandwidth:
        return replace(found, seconds=found.total / save.bandwidth)
    return found


def _busiest(files: Sequence[Written]) -> int:
    """Bytes that the busiest rank writes of these files."""
    return sum(one.total if one.by == RANK_0 else one.bytes * one.each for one in files)


def _critic(plan: Plan) -> Iterator[Written]:
    """The files of a critic, which is trained and saved beside the policy."""
    if plan.roles is None or plan.roles.critic is None or not acts(plan):
        return
    own = role_plan(plan, CRITIC)
    if own.save and any(save_problems(own)):  # a format of the policy's alone, as an adapter's is
        own = own.model_copy(update={"save": own.save.model_copy(update={"format": None})})
    model = valued(model_of(own))
    yield from written(own, saved_of(own, model, rank_ledger(own, model, REFERENCE)))


def _kept(limit: int | None, saves: int | None) -> int:
    """Checkpoints on disk at most: an older one goes only once the new one is whole."""
    if limit is None:
        return saves or 1
    return min(limit + 1, saves) if saves else limit + 1


def _notes(plan: Plan, saved: Saved) -> Iterator[str]:
    if saved.format == "safetensors":
        yield "weights alone: nothing here resumes the optimizer"
    if plan.save and plan.save.disk and plan.save.limit is None and plan.save.saves is None:
        yield "save.limit is not given, and every checkpoint is kept then; save.saves says how many: one is counted"
    if plan.adapter is not None and saved.format in ("adapter", "trainer"):
        yield "of an adapter's run only what it trains is saved; the base model is needed beside it"
    if plan.save and plan.save.limit is not None and saved.format in MERGED:
        yield f"{saved.format} keeps every checkpoint: what is more than save.limit is for you to delete"
    if plan.save and plan.save.limit is not None:
        yield "one more than the limit is there while a new one is written: the oldest goes after it"


def largest(files: Sequence[Written]) -> int:
    """Bytes of the largest file."""
    return max((one.bytes for one in files), default=0)
