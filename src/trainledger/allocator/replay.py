"""Replays of a stream: what the allocator takes from the device for it, and the smallest device that is enough."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass, field

from trainledger.allocator.conf import DEFAULT, Conf
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.state import State, load, state_of
from trainledger.allocator.stem import Stem, Tried, Unbounded
from trainledger.allocator.stream import Kind, Stream, StreamError
from trainledger.facts.allocator_settings import SEARCH

Report = Callable[[int, int], None]  # steps done, steps expected


@dataclass(frozen=True, slots=True)
class Counters:
    """PyTorch's three counters (bytes)."""

    allocated: int
    active: int
    reserved: int


@dataclass(frozen=True, slots=True)
class Peak:
    """Where a peak is: the event (from 0) that reaches it first, the bytes, and what of them was allocated then."""

    at: int
    size: int
    allocated: int

    @property
    def unused(self) -> float:
        """The share that no tensor uses."""
        return (self.size - self.allocated) / self.size if self.size else 0.0


@dataclass(frozen=True, slots=True)
class Segments:
    """The segments at the end: how many, bytes in each pool, bytes free as whole segments, the largest free block."""

    count: int
    small: int
    large: int
    idle: int
    largest_free: int


@dataclass(frozen=True, slots=True)
class Replay:
    """What a stream did (bytes). `oom`: the event that did not fit; the replay ends before it. `retries`: how often
    cached memory was given back to go on; `released` counts blocks given back for any reason."""

    peaks: Counters
    ends: Counters
    reserved: Peak
    allocated: Peak
    retries: int
    released: int
    released_bytes: int
    oom: int | None
    segments: Segments = field(repr=False)

    @property
    def fits(self) -> bool:
        """Whether the whole stream ran."""
        return self.oom is None


@dataclass(frozen=True, slots=True)
class Given:
    """What a replay starts from: the device's bytes for segments (None: no bound), all of its bytes (None: the
    same), and the segments that are there already."""

    capacity: int | None = None
    total: int | None = None
    state: State = ()
    addresses: tuple[int, ...] = ()


def replay(stream: Stream, conf: Conf = DEFAULT, capacity: int | None = None, given: Given | None = None) -> Replay:
    """Run a stream on `capacity` bytes (None: no bound), or on `given`. Raises StreamError for an impossible stream."""
    simulator = prepared(conf, given or Given(capacity))
    return finished(simulator, simulator.run(stream))


def prepared(conf: Conf, given: Given) -> Simulator:
    """A simulator as a replay starts it."""
    simulator = Simulator(conf, given.capacity, given.total)
    load(simulator, given.state)
    simulator.device.at(given.addresses)
    return simulator


def finished(simulator: Simulator, ran: bool) -> Replay:
    """What a simulator has seen; `ran`: whether all of it fitted."""
    device = simulator.device
    allocated = simulator.peak_allocated
    return Replay(
        Counters(allocated, simulator.peak_active, simulator.peak_reserved),
        Counters(simulator.allocated, simulator.active, device.reserved),
        Peak(simulator.peak_reserved_at, simulator.peak_reserved, simulator.peak_reserved_allocated),
        Peak(simulator.peak_allocated_at, allocated, allocated),
        device.retries,
        device.released,
        device.released_bytes,
        None if ran else simulator.at,
        _segments(state_of(simulator)),
    )


def _segments(state: State) -> Segments:
    free = [piece.size for one in state for piece in one.pieces if not piece.ident and not piece.waits]
    return Segments(
        len(state),
        sum(one.size for one in state if one.small),
        sum(one.size for one in state if not one.small),
        sum(one.size for one in state if one.idle),
        max(free, default=0),
    )


def history(stream: Stream, conf: Conf = DEFAULT, given: Given | None = None) -> tuple[array[int], ...]:
    """Allocated, active and reserved bytes after every event, up to the one that does not fit. Raises StreamError."""
    simulator = prepared(conf, given or Given())
    allocated, active, reserved = array("q"), array("q"), array("q")
    for kind, ident, size, where in stream:
        try:
            if not simulator.step(kind, ident, size, where):
                break
        except KeyError:
            raise StreamError(f"event {simulator.at}: tensor {ident} is not live") from None
        allocated.append(simulator.allocated)
        active.append(simulator.active)
        reserved.append(simulator.reserved)
    return allocated, active, reserved


@dataclass(frozen=True, slots=True)
class Smallest:
    """The smallest capacity (bytes, to `step`) that was found to be enough, and the largest below it that was not.

    `replay`: the run on that capacity, with its retries and what it gave back; `unbounded`: the run without a bound.
    A larger device may fail where a smaller one does not: how blocks fall is chaotic, so this is no sharp edge.
    """

    capacity: int
    fails: int
    step: int
    replay: Replay
    unbounded: Replay


def smallest_capacity(
    stream: Stream, conf: Conf = DEFAULT, step: int = SEARCH.step, report: Report | None = None
) -> Smallest:
    """Bisect the smallest capacity on which the whole stream runs. Raises StreamError for an impossible stream.

    `report` is called after every replay. No capacity below the largest sum of live blocks can be enough, and that of
    the run without a bound is.
    """
    whole = Unbounded(conf)
    unbounded, stem = finished(whole, whole.run(stream)), Stem(stream, whole)
    low = max(least(stream, conf) // step - 1, 0)
    high = max(-(-int(unbounded.peaks.reserved / conf.fraction) // step), low + 1) if conf.fraction else low + 1
    expected = (high - low).bit_length() + 1
    # a bound that is never met changes nothing, unless it says what is collected or how far addresses reach
    same = conf.fraction == 1 and not conf.collect and not conf.expandable
    best, done = (unbounded if same else replay(stream, conf, high * step)), 1
    while not best.fits and done < expected:  # garbage collection may stand in the way
        low, high, done = high, high + (high - low), done + 1
        best = replay(stream, conf, high * step)
    found: Simulator | None = None
    known = Tried()
    while high - low > 1:
        middle = (low + high) >> 1
        tried, fits = (known.at(middle * step) if same else None) or known.added(
            *_run(stream, stem if same else conf, (low, middle, step))
        )
        done += 1
        if report is not None:
            report(done, max(expected, done))
        if fits:
            high, found = middle, tried
        else:
            low = middle
    return Smallest(high * step, low * step, step, finished(found, True) if found else best, unbounded)


def _run(stream: Stream, start: Stem | Conf, sizes: tuple[int, int, int]) -> tuple[Simulator, bool]:
    """A run on a device of `middle` steps, and whether all of it fitted: from where one of `low` steps fails, or from
    the beginning under settings that have no such place."""
    low, middle, step = sizes
    tried = start.at(low * step, middle * step) if isinstance(start, Stem) else Simulator(start, middle * step)
    return tried, tried.run(stream, tried.at)


def least(stream: Stream, conf: Conf = DEFAULT) -> int:
    """The largest sum of live blocks (bytes), each as small as it can be: no device below it is enough."""
    live: dict[int, int] = {}
    known: dict[int, int] = {}
    total = most = 0
    for kind, ident, size, _ in stream:
        if kind == Kind.ALLOC:
            block = known.get(size) or known.setdefault(size, conf.rounded(size))
            live[ident] = block
            total += block
            most = max(most, total)
        elif kind == Kind.FREE:
            total -= live.pop(ident, 0)
    return most
