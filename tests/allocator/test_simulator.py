"""Golden vectors, each derived by hand from the allocator's rules: the comments carry the derivation."""

from __future__ import annotations

import pytest

from trainledger.allocator.conf import parse_conf
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.stream import Builder, Kind, StreamError
from trainledger.base.units import MIB

KIB = 1024


def made(conf: str = "", capacity: int | None = None, total: int | None = None) -> Simulator:
    """A simulator with settings as the environment spells them."""
    return Simulator(parse_conf(conf), capacity, total)


def counters(simulator: Simulator) -> tuple[float, float, float]:
    """Allocated, active, reserved in MiB."""
    return simulator.allocated / MIB, simulator.active / MIB, simulator.reserved / MIB


@pytest.mark.parametrize(
    ("size", "allocated", "reserved"),
    [
        (1, 512, 2 * MIB),  # the smallest block is 512 bytes, a small segment 2 MiB
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),  # 1 MiB is still small
        (MIB + 1, MIB + 512, 20 * MIB),  # large: below 10 MiB a shared segment of 20 MiB
        (10 * MIB - 512, 10 * MIB - 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),  # from 10 MiB on a segment of its own, in steps of 2 MiB
        (11 * MIB - 512, 11 * MIB - 512, 12 * MIB),  # the rest, 1 MiB + 512, is split off
        (11 * MIB, 12 * MIB, 12 * MIB),  # the rest, 1 MiB, is not: it counts as allocated
        (19 * MIB, 20 * MIB, 20 * MIB),
        (20 * MIB + 1, 21 * MIB - MIB + 512, 22 * MIB),  # 20 MiB + 512; the rest, 2 MiB - 512, is split off
    ],
)
def test_one_request(size: int, allocated: int, reserved: int) -> None:
    simulator = made()
    assert simulator.alloc(1, size)
    assert (simulator.allocated, simulator.active, simulator.reserved) == (allocated, allocated, reserved)
    simulator.free(1)
    assert (simulator.allocated, simulator.active, simulator.reserved) == (0, 0, reserved)


def test_best_fit_takes_the_smallest_then_the_lowest() -> None:
    simulator = made()
    for ident, size in enumerate((30, 40, 30, 50), 1):
        simulator.alloc(ident, size * MIB)
    lowest = simulator.blocks[1].address
    for ident in (4, 3, 2, 1):
        simulator.free(ident)
    simulator.alloc(5, 30 * MIB)  # of two free blocks of 30 MiB the one at the lower address
    assert simulator.blocks[5].address == lowest
    simulator.alloc(6, 36 * MIB)  # 40 is the smallest that is enough, and 4 are split off
    assert simulator.reserved == 150 * MIB
    assert simulator.allocated == 66 * MIB
    simulator.alloc(7, 4 * MIB)  # fits into those 4 exactly
    assert simulator.blocks[7].address == simulator.blocks[6].address + 36 * MIB


def test_splits_and_merges() -> None:
    simulator = made()
    for ident in (1, 2, 3):
        simulator.alloc(ident, 6 * MIB)  # one segment of 20 MiB: 6 + 6 + 6, a rest of 2
    assert counters(simulator) == (18, 18, 20)
    simulator.free(1)
    simulator.free(3)  # merges with the rest: 8 MiB; the first 6 are apart, the second tensor lies between
    simulator.alloc(4, 7 * MIB)  # takes 8: the rest of 1 MiB is not split off
    assert counters(simulator) == (14, 14, 20)
    simulator.free(4)
    simulator.free(2)  # all three merge
    simulator.alloc(5, 20 * MIB)
    assert counters(simulator) == (20, 20, 20)


def test_small_pool_splits_to_the_last_granule() -> None:
    simulator = made()
    simulator.alloc(1, MIB)
    simulator.alloc(2, MIB - 512)
    simulator.alloc(3, 512)
    assert (simulator.allocated, simulator.reserved) == (2 * MIB, 2 * MIB)
    simulator.alloc(4, 1)
    assert simulator.reserved == 4 * MIB


def test_pools_are_per_stream() -> None:
    simulator = made()
    simulator.alloc(1, 30 * MIB, 0)
    simulator.free(1)
    simulator.alloc(2, 30 * MIB, 7)  # the free block belongs to stream 0
    assert counters(simulator) == (30, 30, 60)


def test_record_stream_defers_the_free() -> None:
    simulator = made()
    simulator.alloc(1, 30 * MIB)
    simulator.record(1, 5)
    simulator.record(1, 0)  # its own stream: no wait
    simulator.free(1)
    assert counters(simulator) == (0, 30, 30)  # allocated drops at once, active does not
    simulator.alloc(2, 30 * MIB)  # the block is not to be had yet
    assert counters(simulator) == (30, 60, 60)
    simulator.done(5)
    assert simulator.active == 60 * MIB  # noticed at the next request only
    simulator.alloc(3, 30 * MIB)
    assert counters(simulator) == (60, 60, 60)


def test_record_stream_waits_for_every_stream() -> None:
    simulator = made()
    simulator.alloc(1, 30 * MIB)
    simulator.record(1, 5)
    simulator.record(1, 6)
    simulator.free(1)
    simulator.done(5)
    simulator.alloc(2, 30 * MIB)
    assert counters(simulator) == (30, 60, 60)
    simulator.done(6)
    simulator.alloc(3, 1)
    assert simulator.active == 30 * MIB + 512


def test_retry_gives_back_whole_segments() -> None:
    simulator = made("", 100 * MIB)
    simulator.alloc(1, 40 * MIB)
    simulator.alloc(2, 30 * MIB)
    simulator.alloc(3, 20 * MIB)
    simulator.free(1)
    simulator.free(2)
    simulator.alloc(4, 10 * MIB)  # best fit: the front of the 30; 20 MiB of it stay free
    assert counters(simulator) == (30, 30, 90)
    assert simulator.alloc(5, 50 * MIB)  # 90 + 50 > 100: the 40 go back, not the 30, which are in use in part
    assert counters(simulator) == (80, 80, 100)
    assert (simulator.device.retries, simulator.device.released, simulator.device.released_bytes) == (1, 1, 40 * MIB)
    assert not simulator.alloc(6, 40 * MIB)
    assert simulator.device.retries == 2


def test_retry_waits_for_streams() -> None:
    simulator = made("", 60 * MIB)
    simulator.alloc(1, 40 * MIB)
    simulator.record(1, 3)
    simulator.free(1)
    assert simulator.alloc(2, 50 * MIB)  # the retry synchronises, so that the 40 can go back
    assert counters(simulator) == (50, 50, 50)


def test_empty_cache() -> None:
    simulator = made()
    simulator.alloc(1, 30 * MIB)
    simulator.alloc(2, 6 * MIB)
    simulator.alloc(3, 1)
    simulator.free(1)
    simulator.free(3)
    simulator.empty()
    assert counters(simulator) == (6, 6, 20)
    assert simulator.device.segments == 1


def test_run_says_where_the_device_is_full() -> None:
    builder = Builder()
    first = builder.alloc(30 * MIB)
    builder.alloc(0)  # no memory, no event
    builder.free(first)
    builder.alloc(40 * MIB)
    builder.alloc(30 * MIB)
    simulator = made("", 60 * MIB)
    assert not simulator.run(builder.build())
    assert simulator.at == 3


def test_memory_fraction_bounds_what_is_taken() -> None:
    simulator = made("per_process_memory_fraction:0.5", None, 100 * MIB)
    assert simulator.alloc(1, 50 * MIB)
    assert not simulator.alloc(2, 1)


def test_oversize_blocks_are_not_split() -> None:
    simulator = made("max_split_size_mb:40")
    simulator.alloc(1, 100 * MIB)
    simulator.free(1)
    simulator.alloc(2, 30 * MIB)  # below 40: may not take the block of 100
    assert counters(simulator) == (30, 30, 130)
    simulator.alloc(3, 80 * MIB)  # 100 is not below 80 + 20: not taken
    assert simulator.reserved == 210 * MIB
    simulator.alloc(4, 80 * MIB + 512)  # 100 is below 80 + 20 + 512: taken whole
    assert counters(simulator) == (210, 210, 210)


def test_oversize_blocks_go_back_before_a_retry() -> None:
    simulator = made("max_split_size_mb:40", 200 * MIB)
    simulator.alloc(1, 60 * MIB)
    simulator.alloc(2, 80 * MIB)
    simulator.alloc(3, 30 * MIB)
    for ident in (1, 2, 3):
        simulator.free(ident)
    assert simulator.alloc(4, 100 * MIB)  # none is as large: 80 goes back, then 60; that is enough, so no retry
    assert (simulator.device.retries, simulator.device.released) == (0, 2)
    assert counters(simulator) == (100, 100, 130)


def test_collection_frees_what_is_old() -> None:
    simulator = made("garbage_collection_threshold:0.5", 200 * MIB)
    for ident in (1, 2, 3):
        simulator.alloc(ident, (20 + 10 * ident) * MIB)  # 30, 40, 50: 120 of 200 MiB, above the threshold of 100
    simulator.free(1)  # idle since search 3
    for ident in (4, 5):
        simulator.alloc(ident, 2 * MIB)  # searches 4 and 5: both take from the 30
    simulator.free(4)
    simulator.free(5)  # idle since search 5
    simulator.free(2)
    simulator.alloc(6, 50 * MIB)  # search 6: the two idle ones are of the same age, and both go
    assert counters(simulator) == (100, 100, 100)
    assert (simulator.device.retries, simulator.device.released_bytes) == (0, 70 * MIB)


def test_collection_stops_at_the_threshold() -> None:
    simulator = made("garbage_collection_threshold:0.5", 400 * MIB)
    for ident, size in enumerate((30, 40, 60), 1):
        simulator.alloc(ident, size * MIB)
    simulator.free(1)  # idle since search 3
    simulator.alloc(4, 50 * MIB)
    simulator.free(2)  # idle since search 4
    simulator.alloc(5, 50 * MIB)  # 180 before it: not above 200
    simulator.alloc(6, 90 * MIB)  # search 6, 230 before it: ages 3 and 2, so the 30 go, and that is enough
    assert simulator.reserved == (230 - 30 + 90) * MIB


def test_expandable_segments_map_missing_pages() -> None:
    simulator = made("expandable_segments:True")
    simulator.alloc(1, 6 * MIB)  # large pages are of 20 MiB
    assert counters(simulator) == (6, 6, 20)
    simulator.alloc(2, 30 * MIB)  # 14 are free at the end: one page more makes 34
    assert counters(simulator) == (36, 36, 40)
    assert simulator.blocks[2].address == simulator.blocks[1].address + 6 * MIB
    simulator.alloc(3, 1)  # small pages are of 2 MiB
    assert simulator.reserved == 42 * MIB
    simulator.alloc(4, 3 * MIB + 512)  # 4 MiB are free; the rest is split off though it is below 1 MiB
    assert simulator.allocated == 39 * MIB + 1024


def test_expandable_segments_give_back_whole_pages() -> None:
    simulator = made("expandable_segments:True")
    simulator.alloc(1, 30 * MIB)
    simulator.alloc(2, 50 * MIB)
    simulator.alloc(3, 10 * MIB)  # 90 of 100 MiB, five pages
    simulator.free(2)
    simulator.empty()  # free: 30 to 80 and 90 to 100; whole pages of it: 40 to 80
    assert counters(simulator) == (40, 40, 60)
    simulator.alloc(4, 50 * MIB)  # 10 free, 40 without pages, in the gap: the lowest place
    assert simulator.blocks[4].address == simulator.blocks[1].address + 30 * MIB
    assert counters(simulator) == (90, 90, 100)


def test_expandable_segments_stop_at_the_capacity() -> None:
    simulator = made("expandable_segments:True", 50 * MIB, 100 * MIB)
    assert simulator.alloc(1, 30 * MIB)
    assert not simulator.alloc(2, 12 * MIB)  # 10 are free, a page of 20 more is not to be had
    assert simulator.alloc(3, 10 * MIB)
    assert counters(simulator) == (40, 40, 40)


def test_expandable_segments_move_pages_to_where_they_are_needed() -> None:
    simulator = made("expandable_segments:True", 60 * MIB, 100 * MIB)
    simulator.alloc(1, 40 * MIB, 1)
    simulator.free(1)
    assert simulator.alloc(2, 30 * MIB, 2)  # the retry takes the pages of stream 1
    assert counters(simulator) == (30, 30, 40)
    assert (simulator.device.retries, simulator.device.released_bytes) == (1, 40 * MIB)


def test_expandable_segments_prefer_what_can_grow_least() -> None:
    simulator = made("expandable_segments:True")
    simulator.alloc(1, 8 * MIB)
    simulator.alloc(2, 8 * MIB)  # the rest of 4 MiB can grow to the end of the range
    simulator.free(1)
    simulator.alloc(3, 3 * MIB)  # 4 are the smaller block, but they count as what they can become
    assert simulator.blocks[3].address + 8 * MIB == simulator.blocks[2].address


@pytest.mark.parametrize(
    ("kind", "ident", "size", "message"),
    [
        (Kind.FREE, 9, 0, "event 1: tensor 9 is not live"),
        (Kind.RECORD, 9, 0, "event 1: tensor 9 is not live"),
        (Kind.ALLOC, 1, 512, "event 1: tensor 1 is live already"),
        (Kind.ALLOC, 2, 0, "event 1: a request of 0 bytes"),
        (99, 0, 0, "event 1: 99 is no kind of event"),
    ],
)
def test_refuses_impossible_streams(kind: Kind, ident: int, size: int, message: str) -> None:
    builder = Builder()
    builder.alloc(4 * KIB)
    builder.add(kind, ident, size)
    with pytest.raises(StreamError, match=message):
        made().run(builder.build())
