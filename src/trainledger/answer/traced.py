"""What a trace of code without a plan answers: the user's own script, or a model in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trainledger.allocator.conf import DEFAULT, Conf
from trainledger.allocator.replay import least, smallest_capacity
from trainledger.allocator.stream import Stream
from trainledger.answer.bands import Band, Peak, largest
from trainledger.answer.estimate import UNKNOWN
from trainledger.answer.verdict import Verdict, judge
from trainledger.base.problems import InputError, Problem, nearest
from trainledger.evidence.trace.job import Job, Tracer
from trainledger.evidence.trace.lines import Trace, trace_of
from trainledger.evidence.trace.record import Record
from trainledger.facts.device_rows import Device
from trainledger.facts.kernel_sets import MULTIPROCESSORS, UNKNOWN_DEVICE
from trainledger.facts.kernels import REFERENCE
from trainledger.facts.overheads import Interval, context
from trainledger.ledger.rank import Ledger
from trainledger.lines.moments import INIT
from trainledger.lines.stream import Moment
from trainledger.lines.workspaces import matmul_workspace

COUNTER = "a value"  # a counter on the host, such as the optimizer's step


@dataclass(frozen=True, slots=True)
class Traced:
    """A trace of code. `peak` is over building and steps, `steps` over whole steps only; `device`: the bytes that a
    device shows, the process's context included."""

    record: Record
    ledger: Ledger
    peak: Peak
    steps: Peak
    device: Band
    verdict: Verdict
    hardware: Device | None

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know: kernels taken, answers given."""
        return tuple(told(self.record))

    @property
    def shares(self) -> tuple[float, ...]:
        """Every moment's bytes as a fraction of the peak's."""
        most = max(self.peak.allocated.expected, 1)
        return tuple(one.allocated / most for one in self.ledger.moments)

    def moment(self, name: str = "") -> Moment:
        """The moment of that name; the peak's where it is empty. Raises InputError with the nearest name."""
        wanted = (name or self.peak.moment).strip().lower()
        names = [one.name for one in self.ledger.moments]
        for one in self.ledger.moments:
            if one.name.lower() == wanted:
                return one
        near = nearest(wanted, names)
        fix = f"Did you mean {near!r}?" if near else ""
        raise InputError([Problem("--moment", f"found {name!r}", f"the moments are {', '.join(names)}", fix)])


def trace_script(script: str, device: Device | None, tracer: Tracer, conf: Conf = DEFAULT) -> Traced:
    """The trace of `FILE:function`. Raises what `tracer` raises when the code fails."""
    return traced(tracer(script_job(script, device)), device, conf)


def script_job(script: str, device: Device | None) -> Job:
    """What the tracing process is told of a script and the device that it would run on."""
    architecture = device.architecture if device and device.architecture not in UNKNOWN else REFERENCE
    row = MULTIPROCESSORS.get(device.name if device else "", UNKNOWN_DEVICE)
    return Job(
        None,
        script=script,
        architecture=architecture,
        workspace=matmul_workspace(architecture, None),
        processors=(row.count, row.threads),
    )


def traced(record: Record, device: Device | None, conf: Conf = DEFAULT) -> Traced:
    """The answer of a record."""
    found = trace_of(record, conf=conf)
    moments = found.moments
    if not moments:
        raise InputError([Problem("", "nothing ran", "a model and at least one step are needed")])
    steps = tuple(one for one in moments if one.name != INIT) or moments
    outside = (context(device.architecture if device else REFERENCE),)
    peak = peak_of(found, moments)
    need = need_of(found.stream, conf, outside)
    verdict = judge(device.usable_bytes if device else None, need.low, need.expected, need.high)
    ledger = Ledger(found.lines, moments, found.segments)
    return Traced(record, ledger, peak, peak_of(found, steps), shifted(peak.reserved, outside), verdict, device)


def peak_of(found: Trace, moments: tuple[Moment, ...]) -> Peak:
    """The largest of some moments, with the bytes reserved by then: the replay's, exact for this stream."""
    moment = largest(moments)
    names = {one.name for one in moments}
    reserved = max(size for name, size in found.reserved if name in names)
    exact = Band(moment.allocated, moment.allocated, moment.allocated)
    return Peak(moment.name, exact, exact, Band(reserved, reserved, reserved), True)


def need_of(stream: Stream, conf: Conf, outside: tuple[Interval, ...]) -> Band:
    """Bytes of a device that the stream needs. Low: live blocks alone; expected: the smallest capacity on which the
    allocator's replay runs through, giving cached memory back where it must; high: it never has to."""
    found = smallest_capacity(stream, conf)
    high = max(found.unbounded.peaks.reserved, found.capacity)
    return shifted(Band(least(stream, conf), found.capacity, high), outside)


def shifted(band: Band, outside: tuple[Interval, ...]) -> Band:
    """A band with what lies outside of the allocator."""
    return Band(
        band.low + round(sum(one.low for one in outside)),
        band.expected + round(sum(one.expected for one in outside)),
        band.high + round(sum(one.high for one in outside)),
    )


def told(record: Record) -> Iterator[str]:
    """What the trace says of itself: attention's kernels, values that the code asked for, notes."""
    if record.kernels:
        calls = ", ".join(f"{kernel} {count} times" for kernel, count in sorted(record.kernels.items()))
        yield f"trace: attention ran {calls}"
    for answer in record.answers:
        if answer.op != COUNTER:
            at = f" in {answer.module}" if answer.module else ""
            yield f"trace: asked for a value of {answer.op}{at}, told {answer.value} ({answer.count} times)"
    for note in record.notes:
        yield f"trace: {note}"
