"""How many events a second the allocator's simulator does, and how long the search for the smallest capacity takes."""

from __future__ import annotations

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from trainledger.allocator.conf import parse_conf
from trainledger.allocator.replay import replay, smallest_capacity
from trainledger.allocator.stream import Builder, Stream
from trainledger.base.units import MIB

EVENTS_PER_SECOND = 500_000
SECONDS = 1.0
LAYERS, STEPS = 32, 10
HIDDEN, WIDE, NORM = 32 * MIB, 112 * MIB, 32768
CONFS = ("", "expandable_segments:True", "max_split_size_mb:64", "roundup_power2_divisions:4")


def steps(count: int) -> Stream:
    """Training steps of a decoder: per layer some tensors saved, some not; backward frees and makes gradients."""
    builder = Builder()
    for _ in range(LAYERS * 3):  # weights and both moments
        for size in (HIDDEN, HIDDEN // 4, HIDDEN // 4, HIDDEN, WIDE, WIDE, WIDE, NORM, NORM):
            builder.alloc(size)
    for _ in range(count):
        saved: list[int] = []
        for _ in range(LAYERS):
            for size in (HIDDEN, NORM, HIDDEN, HIDDEN // 4, HIDDEN // 4, HIDDEN, NORM, WIDE, WIDE, WIDE):
                saved.append(builder.alloc(size))
                builder.free(builder.alloc(size * 2))
        gradients: list[int] = []
        while saved:
            gradient = builder.alloc(WIDE if len(saved) % 3 else HIDDEN + NORM)
            builder.free(saved.pop())
            if len(saved) % 2:
                gradients.append(gradient)
            else:
                builder.free(gradient)
        for gradient in gradients:
            builder.free(gradient)
    return builder.build()


@pytest.mark.parametrize("conf", CONFS)
def bench_replay(benchmark: BenchmarkFixture, conf: str) -> None:
    """Events a second of one replay stay above the promise."""
    stream, read = steps(STEPS), parse_conf(conf)
    benchmark(replay, stream, read)
    rate = len(stream) / benchmark.stats.stats.median
    benchmark.extra_info["events_per_second"] = round(rate)
    assert rate >= EVENTS_PER_SECOND


@pytest.mark.parametrize("conf", CONFS)
def bench_smallest_capacity(benchmark: BenchmarkFixture, conf: str) -> None:
    """The search over three steps, to 2 MiB."""
    stream, read = steps(3), parse_conf(conf)
    benchmark(smallest_capacity, stream, read)
    assert benchmark.stats.stats.median < SECONDS
