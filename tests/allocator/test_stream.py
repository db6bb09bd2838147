"""Streams and their builders."""

from __future__ import annotations

import pytest

from trainledger.allocator.replay import replay
from trainledger.allocator.stream import Builder, Kind, StreamError, stream_of
from trainledger.base.units import MIB
from trainledger.lines.stream import EMPTY, Segment


def test_builder() -> None:
    builder = Builder()
    first = builder.alloc(100, 2)
    builder.record(first, 3)
    builder.free(first)
    builder.done(3)
    builder.empty()
    stream = builder.build()
    assert len(stream) == 5
    assert list(stream) == [
        (Kind.ALLOC, 1, 100, 2),
        (Kind.RECORD, 1, 0, 3),
        (Kind.FREE, 1, 0, 0),
        (Kind.DONE, 0, 0, 3),
        (Kind.EMPTY, 0, 0, 0),
    ]


def test_tensors_of_no_bytes_take_no_memory() -> None:
    builder = Builder()
    nothing = builder.alloc(0)
    builder.record(nothing, 1)
    builder.free(nothing)
    assert len(builder.build()) == 0


def test_lines_become_tensors_and_the_youngest_dies_first() -> None:
    segments = (Segment("forward", (1, 2), 2), Segment("backward", (-1,), 2), Segment("step", (-2, -2)))
    stream = stream_of(segments, (30 * MIB, 5 * MIB))
    assert [ident if kind == Kind.ALLOC else -ident for kind, ident, _, _ in stream] == [1, 2, 3, 4, -3, -1, -4, -2]
    result = replay(stream)
    assert (result.peaks.allocated, result.peaks.reserved, result.ends.allocated) == (70 * MIB, 80 * MIB, 0)


def test_lines_have_streams() -> None:
    stream = stream_of((Segment("forward", (1, 2)),), (512, 512), (0, 4))
    assert list(stream.streams) == [0, 4]
    assert replay(stream).peaks.reserved == 4 * MIB


def test_a_line_that_dies_too_often_is_refused() -> None:
    with pytest.raises(StreamError, match="line 0 dies and is not live"):
        stream_of((Segment("forward", (1, -1, -1)),), (512,))


def test_copies_of_a_queued_line_die_in_the_order_in_which_they_were_born() -> None:
    segments = (Segment("forward", (1, 2), 3), Segment("backward", (-1, -2), 2))
    stream = stream_of(segments, (512, 1024), (), frozenset({0}))
    freed = [ident for kind, ident, _, _ in stream if kind == Kind.FREE]
    assert freed == [1, 6, 3, 4]


def test_what_is_cached_can_be_given_back() -> None:
    stream = stream_of((Segment("init", (1, -1, EMPTY, 2)),), (30 * MIB, 40 * MIB))
    assert [kind for kind, _, _, _ in stream] == [Kind.ALLOC, Kind.FREE, Kind.EMPTY, Kind.ALLOC]
    assert replay(stream).peaks.reserved == 40 * MIB
