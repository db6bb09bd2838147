"""`trainledger.trace` and `trainledger.tracing`: the ledger of a model's own code, on tensors without storage."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from trainledger.answer.traced import Traced, script_job, traced
from trainledger.api.shown import Shown
from trainledger.base.problems import TraceError
from trainledger.evidence.trace.record import Record
from trainledger.facts.device_rows import Device
from trainledger.facts.devices import device_from
from trainledger.show.estimate import View
from trainledger.show.table import Screen, Section
from trainledger.show.traced import document, sections

TITLE = "trace"


@dataclass(frozen=True, slots=True, repr=False)
class TraceResult(Shown):
    """A trace. `answer` is the whole of it; the methods are what the command line prints."""

    answer: Traced

    def to_dict(self, moment: str = "") -> dict[str, Any]:
        """What `trainledger trace --script ... --json` prints. Raises InputError for an unknown moment."""
        return document(self.answer, moment)

    def __repr__(self) -> str:
        peak = self.answer.peak
        return f"<TraceResult: {peak.allocated.expected:,} B allocated at {peak.moment!r}>"

    def _sections(self, block: str) -> tuple[Section, ...]:
        width = 100
        return sections(self.answer, TITLE, View(), Screen(False, width, block))


def trace(model: Any, batch: Any, **how: Any) -> TraceResult:
    """The ledger of a few training steps of a model; nothing is computed, and no memory of its size is needed.

    `batch`: tensors, or shapes of the right kind, as the model is called with them (a mapping, a sequence or one
    tensor). `optimizer`: one, or a function of the parameters; `loss`: a function of output and batch (left out: the
    output's own); `steps`: 2; `device`: a device's name. The model and its optimizer are left as they were. Raises
    TraceError, one line that names the module, when the code fails; InputError for an unknown device or argument.
    """
    device = _device(how.pop("device", None))
    unknown = [name for name in how if name not in ("optimizer", "loss", "steps")]
    if unknown:
        raise TypeError(f"trace() got an unexpected keyword argument {unknown[0]!r}")
    live = _live()
    return TraceResult(traced(live.trace_model(live.Given(model, batch, **how), script_job("", device)), device))


class Tracing:
    """What `tracing` hands over; `result` is there when its block has ended."""

    def __init__(self, device: Device | None) -> None:
        self.device = device
        self.records: list[Record] = []

    @property
    def result(self) -> TraceResult:
        """The trace of the block. Raises TraceError before it has ended."""
        if not self.records:
            raise TraceError("the block has not ended yet")
        return TraceResult(traced(self.records[0], self.device))


@contextmanager
def tracing(device: str | None = None) -> Iterator[Tracing]:
    """Trace the code of a block that makes its own model, optimizer and steps. Raises TraceError, one line."""
    found = Tracing(_device(device))
    with _live().recording(script_job("", found.device), found.records):
        yield found


def _device(name: str | None) -> Device | None:
    return device_from(name, "device")


def _live() -> Any:
    try:
        from trainledger.evidence.trace.live import notebook
    except ImportError as error:
        raise TraceError(f"the trace needs torch: {error}; pip install 'trainledger[trace]'") from None
    return notebook
