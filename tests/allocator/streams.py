"""Random streams and segments for the tests of the allocator."""

from __future__ import annotations

from hypothesis import strategies as st

from trainledger.allocator.stream import Builder, Stream
from trainledger.base.units import MIB
from trainledger.lines.stream import EMPTY, Segment

SIZES = (1, 512, 700, MIB // 2, MIB, MIB + 1, 3 * MIB, 9 * MIB, 10 * MIB, 11 * MIB, 21 * MIB + 7, 40 * MIB, 66 * MIB)
CONFS = (
    "",
    "expandable_segments:True",
    "max_split_size_mb:30",
    "roundup_power2_divisions:4",
    "garbage_collection_threshold:0.6",
    "max_split_size_mb:24,garbage_collection_threshold:0.5,roundup_power2_divisions:[32:2,>:8]",
    "expandable_segments:True,max_split_size_mb:30",
    "large_segment_size_mb:32",
)


@st.composite
def streams(draw: st.DrawFn, returned: bool = False) -> Stream:
    """Some allocations and frees, on up to three streams, with uses on others; `returned`: everything is freed."""
    builder, live = Builder(), []
    steps = draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 10**6)), max_size=80))
    for action, number in steps:
        if action <= 4 or not live:
            live.append(builder.alloc(SIZES[number % len(SIZES)], number // 100 % 3 if number % 2 else 0))
        elif action <= 7:
            builder.free(live.pop(number % len(live)))
        elif action == 8 and number % 4:
            builder.record(live[number % len(live)], number // 7 % 3)
        elif number % 5:
            builder.done(number // 5 % 3)
        else:
            builder.empty()
    if returned:
        for ident in live:
            builder.free(ident)
        for stream in range(3):
            builder.done(stream)
        builder.empty()
    return builder.build()


@st.composite
def segments(draw: st.DrawFn) -> tuple[Segment, ...]:
    """Turns of lines that are born and die, each death after a birth; some give back what is cached."""
    live = [0] * len(SIZES)
    made = []
    for _ in range(draw(st.integers(1, 5))):
        repeat = draw(st.integers(1, 3))
        events: list[int] = []
        here = [0] * len(SIZES)
        for line, action in draw(st.lists(st.tuples(st.integers(0, len(SIZES) - 1), st.integers(0, 9)), max_size=30)):
            if action == 9:
                events.append(EMPTY)
            elif action < 5 or live[line] + here[line] * repeat < 1 or here[line] < 0:
                events.append(line + 1)
                here[line] += 1
            elif here[line] > 0 or live[line] >= repeat:
                events.append(-line - 1)
                here[line] -= 1
        live = [before + more * repeat for before, more in zip(live, here, strict=True)]
        if min(live) >= 0:
            made.append(Segment("step", tuple(events), repeat, draw(st.integers(0, 2))))
        else:
            live = [before - more * repeat for before, more in zip(live, here, strict=True)]
    return tuple(made)
