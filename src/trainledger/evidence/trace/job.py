"""What a trace is asked to do, as plain data that another process can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.evidence.trace.record import Record
from trainledger.plan.schema import Plan


@dataclass(frozen=True, slots=True)
class Job:
    """A plan or a script (`FILE:function`) to trace, and where it would run: architecture, bytes of one thread's matrix
    product workspace, multiprocessors and the threads of each."""

    plan: Plan | None
    script: str = ""
    architecture: str = ""
    workspace: int = 0
    processors: tuple[int, int] = (0, 0)
    torch: str = ""
    steps: int = 0


Report = Callable[[str], None]
Tracer = Callable[[Job], Record]


def as_data(job: Job) -> dict[str, Any]:
    """The job as JSON values."""
    return {
        "plan": None if job.plan is None else job.plan.model_dump(mode="json", by_alias=True),
        "script": job.script,
        "architecture": job.architecture,
        "workspace": job.workspace,
        "processors": list(job.processors),
        "torch": job.torch,
        "steps": job.steps,
    }


def from_data(data: Mapping[str, Any]) -> Job:
    """The job of `as_data`."""
    plan = None if data["plan"] is None else Plan.model_validate(data["plan"])
    count, threads = data["processors"]
    return Job(
        plan, data["script"], data["architecture"], data["workspace"], (count, threads), data["torch"], data["steps"]
    )
