"""The ledger's births and deaths replayed on the caching allocator: what blocks hold, and what the device gives.

The replay finds every moment's largest instant by what is allocated in blocks. What blocks hold beyond the tensors
that were asked for (ends too small to be split off) is a line of its own, so that live lines still add up.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from typing import NamedTuple

from trainledger.allocator.conf import Conf
from trainledger.allocator.lined import Lined
from trainledger.allocator.stream import Stream, stream_of
from trainledger.allocator.turned import Turned, lines_on
from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import InputError, Problem
from trainledger.base.sources import Basis
from trainledger.base.units import LARGEST
from trainledger.facts.allocator import CUDA
from trainledger.facts.allocator_settings import REPLAY
from trainledger.facts.dtypes import UINT8
from trainledger.ledger.beyond import in_steps
from trainledger.ledger.rank import Ledger, payload
from trainledger.lines.line import Account, Line
from trainledger.lines.moments import INIT, OPTIMIZER, STEPS, in_part, part_of
from trainledger.lines.stream import EMPTY, Moment, Segment, Spot, lives, net

ENDS_WHY = "what blocks hold beyond the tensors in them: ends that the allocator does not split off, counted by replay"


class Asked(NamedTuple):
    """What a replay is of: segments; bytes and streams by line, and the lines that are queued."""

    segments: tuple[Segment, ...]
    sizes: list[int]
    streams: list[int]
    queued: frozenset[int]


@dataclass(frozen=True, slots=True)
class Replayed:
    """A ledger with its moments as the allocator has them; bytes reserved at most while building, in the steps, which
    begin with what building left, and after them (evaluation, a save); what was replayed, for further replays."""

    ledger: Ledger
    built: int
    reserved: int
    asked: Asked
    beyond: int = 0

    @property
    def stream(self) -> Stream:
        """The stream of what was replayed, made anew."""
        return stream_of(*self.asked)

    @property
    def most(self) -> int:
        """Bytes reserved at most, over the whole run."""
        return max(self.built, self.reserved, self.beyond)


def replayed(ledger: Ledger, conf: Conf) -> Replayed | None:
    """Replay a ledger without a bound on the device; None where the settings or the number of events forbid it. Raises
    InputError for a tensor of 2^63 bytes or more."""
    sizes = [payload(line) for line in ledger.lines]
    _check(ledger.lines, sizes)
    own = sized(ledger.segments, sizes)
    segments = _longer(own, {number for number, line in enumerate(ledger.lines) if line.account is Account.BUCKETS})
    events = sum(len(segment.events) * segment.repeat for segment in segments)
    if not conf.exact or events > REPLAY.events:
        return None
    queued = frozenset(number for number, line in enumerate(ledger.lines) if line.use.queued)
    asked = Asked(segments, sizes, [line.use.stream for line in ledger.lines], queued)
    spots, (built, reserved, beyond) = _run(lines_on(conf, *asked[1:]), segments)
    moments = lives(segments, spots)
    ends = len(ledger.lines)
    lines = (*ledger.lines, _ends_line())
    made = tuple(_with_ends(moment, lines, ends) for moment in moments)
    again = replace(ledger, lines=lines, moments=made, segments=own)
    return Replayed(again, built, reserved, asked, beyond)


def _check(lines: Sequence[Line], sizes: Sequence[int]) -> None:
    """Raise InputError for a tensor whose bytes no count of an allocator holds."""
    most = max(range(len(sizes)), key=sizes.__getitem__, default=None)
    if most is not None and sizes[most] >= LARGEST:
        found = f"{lines[most].name} takes {sizes[most]:,} B"
        fix = "Use a smaller batch.micro_batch or batch.sequence, or a smaller model."
        raise InputError([Problem("batch", found, "a tensor is below 2^63 B", fix)])


def sized(segments: Sequence[Segment], sizes: Sequence[int]) -> tuple[Segment, ...]:
    """The segments without tensors that have no element: requests of 0 bytes never reach the allocator."""
    if all(sizes):
        return tuple(segments)
    return tuple(
        segment._replace(events=tuple(event for event in segment.events if event == EMPTY or sizes[abs(event) - 1]))
        for segment in segments
    )


def _longer(segments: tuple[Segment, ...], buckets: Set[int]) -> tuple[Segment, ...]:
    """The segments with the last step once more: what it left cached may not fit its own requests as they come. DDP
    does not make its buckets anew again; a step that does anything else once is not repeated."""
    again, at = _again(last_step(segments), buckets), _beyond(segments)
    return (*segments[:at], *again, *segments[at:]) if repeats(again) else segments


def _again(step: tuple[Segment, ...], buckets: Set[int]) -> tuple[Segment, ...]:
    """A step without segments that only change which buckets are there after it."""
    changed = net(step)
    once = {line for line in buckets if changed[line]}
    return tuple(one for one in step if not one.events or any(abs(event) - 1 not in once for event in one.events))


def repeats(step: Sequence[Segment]) -> bool:
    """Whether a step leaves what it found, so that it may run again."""
    return not any(net(step).values())


def whole_steps(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """Building and the steps, without what follows them."""
    return segments[: _beyond(segments)]


def _beyond(segments: Sequence[Segment]) -> int:
    """Where what follows the steps begins."""
    beyond = {moment for moment in {one.moment for one in segments} if moment != INIT and not in_steps(moment)}
    return (
        next((at for at, one in enumerate(segments) if one.moment in beyond), len(segments))
        if beyond
        else len(segments)
    )


def last_step(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """The segments of the last step, of several that have the same name: it begins where the one before has ended."""
    moments = {name for name in {one.moment for one in segments} if part_of(name) == STEPS[-1]}
    own = tuple(one for one in segments if one.moment in moments)
    starts = _begun(own)
    return own[starts[-1] :] if starts else own


def _begun(segments: Sequence[Segment]) -> list[int]:
    """Where repeats of the last step begin."""
    ended = in_part(STEPS[-1], OPTIMIZER)
    return [at for at in range(1, len(segments)) if segments[at - 1].moment == ended != segments[at].moment]


def _run(lined: Turned | Lined, segments: Sequence[Segment]) -> tuple[dict[str, Spot], tuple[int, int, int]]:
    """Every moment's largest instant by allocated blocks, and what was reserved at most before the first step, in the
    steps, and after them. Once a repeat of the last step takes nothing more from the device, the others are not run;
    one that begins with every block where the equal step before began is not either."""
    spots: dict[str, Spot] = {}
    built, stepped, taken, begins = 0, 0, None, False
    begun, end = _begun(segments), _beyond(segments)
    pairs, states = _repeats(segments, begun), dict[int, object]()
    marks = {end, *begun, *pairs, *pairs.values()}
    index = 0
    while index < len(segments):
        moment, events, repeat, lane = segments[index]
        if index in marks:
            if index == end:
                stepped, lined.most = lined.most, lined.reserved
            elif index in begun and end == len(segments):
                if taken == lined.reserved:
                    break
                taken = lined.reserved
            if index in pairs or index in pairs.values():
                states[index] = lined.state()
                before = pairs.get(index, index)
                if before < index and states[index] is not None and states[index] == states[before]:
                    index += index - before
                    continue
        lined.peak, lined.peak_at, start = lined.allocated, lined.at - 1, lined.at
        if moment != INIT and not begins:
            built, lined.most, begins = lined.most, lined.reserved, True
        for _ in range(repeat if events else 0):
            lined.run(events, lane)
        if moment not in spots or lined.peak > spots[moment].total:
            turn, at = divmod(lined.peak_at - start + 1, len(events)) if events else (0, 0)
            spots[moment] = Spot(lined.peak, index, turn, at)
        index += 1
    most = lined.most
    return spots, (built, stepped, most) if end < len(segments) else (built, most, 0)


def _repeats(segments: Sequence[Segment], begun: Sequence[int]) -> dict[int, int]:
    """Where a repeat of the last step begins that does what the one before does, and where that one begins."""
    first = next((at for at, one in enumerate(segments) if part_of(one.moment) == STEPS[-1]), 0)
    pairs = zip((first, *begun), begun, strict=False)
    return {at: before for before, at in pairs if segments[before:at] == segments[at : at + at - before]}


def _ends_line() -> Line:
    dims = (Axis(Dim.ELEMENTS, CUDA.granule),)
    return Line(Account.ENDS, "ends of blocks", dims, UINT8, CUDA.granule, Basis.COUNTED, CUDA.source, ENDS_WHY)


def _with_ends(moment: Moment, lines: Sequence[Line], ends: int) -> Moment:
    """The moment with the line of block ends, in granules, so that the live lines add up to its bytes."""
    held = sum(lines[line].unit * copies for line, copies in moment.live)
    granules = (moment.allocated - held) // CUDA.granule
    return Moment(moment.name, moment.allocated, (*moment.live, (ends, granules)) if granules else moment.live)
