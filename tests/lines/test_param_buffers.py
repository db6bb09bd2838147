"""Megatron-Core's flat buffers: against its own code, run and frozen; and what holds for any parameters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from math import lcm
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.facts.dtypes import BF16, DTYPES, FP8, FP32, MXFP8, NVFP4
from trainledger.lines.param_buffers import Buffer, Parameter, Wrap, buffers, experts_apart
from trainledger.lines.param_ranges import shard

DATA = Path(__file__).parent.parent / "data" / "megatron_buffers.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
CASES = [pytest.param(row, release, id=f"{row['name']}-{release}") for row in ROWS for release in row["releases"]]


def creation(found: Iterable[Buffer]) -> Iterator[tuple[str, int]]:
    """What making the buffers allocates, and (negative) frees, in order: the name of each tensor and its bytes.

    A buffer is made whole; then every parameter is copied into it and lets go of its own memory.
    """
    for buffer in found:
        if buffer.weight_bytes:
            yield f"weights' buffer, {buffer.name}", buffer.weight_bytes
        yield f"gradients' buffer, {buffer.name}", buffer.gradient_bytes
        for placed in buffer.placed:
            one = placed.parameter
            if buffer.weight_bytes:
                yield one.name, -one.bytes
            if one in buffer.promoted:
                yield f"{one.name}, gradient in fp32", FP32.bytes_of(one.elements)


def creation_peak(found: Sequence[Buffer]) -> int:
    """Most bytes of weights and buffers while the buffers are made, over the weights that the model was built with."""
    live = peak = sum(placed.parameter.bytes for buffer in found for placed in buffer.placed)
    for _, size in creation(found):
        live += size
        peak = max(peak, live)
    return peak


def promoted_bytes(buffer: Buffer) -> int:
    """Bytes of fp32 gradients beside a buffer."""
    return sum(FP32.bytes_of(parameter.elements) for parameter in buffer.promoted)


def parameters_of(row: dict[str, Any]) -> list[Parameter]:
    return [
        Parameter(
            one["name"],
            one["elements"],
            DTYPES[one["dtype"]],
            expert=one.get("expert", False),
            shared_embedding=one.get("shared_embedding", False),
        )
        for one in row["parameters"]
    ]


def wrap_of(row: dict[str, Any], release: str) -> Wrap:
    return Wrap(
        ranks=row["ranks"],
        expert_ranks=row["expert_ranks"],
        distributed=row["distributed"],
        bucket=row["bucket"],
        gradients=DTYPES[row["gradients"]] if row["gradients"] else None,
        fast=row.get("high_bandwidth", False),
        instances=row.get("instances", 1),
        release=release,
    )


def as_row(buffer: Buffer) -> dict[str, Any]:
    """A buffer as the frozen rows have it."""
    pieces = [shard(buffer, rank) for rank in range(buffer.ranks)] if buffer.distributed else []
    return {
        "weights": buffer.weights.name,
        "gradients": buffer.gradients.name,
        "expert": buffer.expert,
        "elements": buffer.elements,
        "unpadded": buffer.unpadded,
        "weight_bytes": buffer.weight_bytes,
        "gradient_bytes": buffer.gradient_bytes,
        "buckets": [[one.start, one.end, one.unpadded] for one in buffer.buckets],
        "placed": {one.parameter.name: [one.start, one.end, one.bucket] for one in buffer.placed},
        "shards": [
            [
                [one.parameter.name, one.bucket, *map(list, (one.world, one.in_bucket, one.local, one.within))]
                for one in owned
            ]
            for owned in pieces
        ],
    }


@pytest.mark.parametrize(("row", "release"), CASES)
def test_buffers_and_ranges_are_those_of_megatrons_own_code(row: dict[str, Any], release: str) -> None:
    if row["buffers"] is None:  # an assertion of its own stops it
        with pytest.raises(ValueError, match=r"shared embedding|two buckets"):
            [as_row(buffer) for buffer in buffers(parameters_of(row), wrap_of(row, release))]
        return
    assert [as_row(buffer) for buffer in buffers(parameters_of(row), wrap_of(row, release))] == row["buffers"]


def test_the_frozen_rows_tell_releases_apart() -> None:
    told = {(row["name"], str(row["buffers"])) for row in ROWS}
    assert len(told) > len({name for name, _ in told})


numels = st.lists(st.integers(1, 5000), min_size=1, max_size=12)
groups = st.integers(1, 12)
buckets = st.none() | st.integers(1, 8000)


def some(sizes: list[int], shared: bool = False) -> list[Parameter]:
    found = [Parameter(f"layers.{at}.weight", size, BF16) for at, size in enumerate(sizes)]
    return [replace(found[0], shared_embedding=True), *found[1:]] if shared else found


@given(numels, groups, buckets, st.booleans())
def test_buckets_follow_each_other_and_divide_evenly(
    sizes: list[int], ranks: int, bucket: int | None, shared: bool
) -> None:
    (buffer,) = buffers(some(sizes, shared), Wrap(ranks, ranks, bucket=bucket))
    assert [one.start for one in buffer.buckets] == [0, *(one.end for one in buffer.buckets[:-1])]
    for number, one in enumerate(buffer.buckets):
        inside = [placed for placed in buffer.placed if placed.bucket == number]
        assert one.end % lcm(ranks, 128) == 0
        assert all(one.start <= placed.start < placed.end <= one.end for placed in inside)
        assert not (inside[1:] and any(placed.parameter.shared_embedding for placed in inside))
        if bucket is not None:  # full with its last parameter, not before
            assert all(placed.end - one.start < bucket for placed in inside[:-1])
    assert all(placed.start % 64 == 0 for placed in buffer.placed)
    assert all(before.end <= after.start for before, after in pairwise(buffer.placed))
    assert [placed.parameter.name for placed in buffer.placed] == [one.name for one in reversed(some(sizes))]


@given(numels, groups, buckets)
def test_replicated_buffers_have_no_padding(sizes: list[int], ranks: int, bucket: int | None) -> None:
    (buffer,) = buffers(some(sizes), Wrap(ranks, ranks, distributed=False, bucket=bucket))
    assert buffer.elements == buffer.unpadded == sum(sizes)
    assert (buffer.weight_bytes, buffer.gradient_bytes) == (0, 4 * sum(sizes))


def test_copying_parameters_into_the_buffers_holds_them_twice_for_a_moment() -> None:
    found = buffers(some([1000, 2000]), Wrap(4, 4))
    elements = found[0].elements
    assert list(creation(found)) == [
        ("weights' buffer, bf16 weights, fp32 gradients", 2 * elements),
        ("gradients' buffer, bf16 weights, fp32 gradients", 4 * elements),
        ("layers.1.weight", -4000),
        ("layers.0.weight", -2000),
    ]
    assert creation_peak(found) == 6000 + 6 * elements
    whole = buffers(some([1000, 2000]), Wrap(4, 4, distributed=False))
    assert creation_peak(whole) == 6000 + 4 * 3000


def test_a_second_buffer_is_made_after_the_first_ones_parameters_are_gone() -> None:
    router = Parameter("router", 6400, FP32)
    found = buffers([*some([6400]), router], Wrap(1, 1))
    peak = 6400 * (2 + 4) + 6 * 6400, 6400 * (6 + 4) + 8 * 6400  # both alive, then the first one's weights copied
    assert creation_peak(found) == max(peak)


def test_gradients_in_fp32_beside_a_buffer_in_16_bits() -> None:
    (buffer,) = buffers(some([100, 200]), Wrap(2, 2, gradients=None, promoted=("layers.1.*",)))
    assert (buffer.gradients, promoted_bytes(buffer)) == (BF16, 800)
    assert ("layers.1.weight, gradient in fp32", 800) in list(creation([buffer]))
    (every,) = buffers(some([100, 200]), Wrap(2, 2, gradients=None, promoted=("all",)))
    assert promoted_bytes(every) == 1200


def test_fp8_weights_have_a_buffer_of_bytes_and_mxfp8_ones_none() -> None:
    fp8 = [replace(one, stored=FP8) for one in some([1024, 1024])]
    (buffer, norms) = buffers([*fp8, Parameter("norm", 128, BF16)], Wrap(2, 2))
    assert (buffer.weights.name, buffer.weight_bytes, buffer.gradient_bytes) == ("uint8", 2048, 8192)
    assert norms.weight_bytes == 256
    (shared,) = buffers([replace(one, stored=MXFP8) for one in fp8], Wrap(2, 2))
    assert (shared.weight_bytes, shared.gradient_bytes) == (0, 8192)
    assert creation_peak([shared]) == 2048 + 8192


@pytest.mark.parametrize(
    ("parameters", "wrap", "said"),
    [
        (some([10]), Wrap(4, 4, fast=True, release="0.11.0"), "0.12"),
        (some([10]), Wrap(4, 4, instances=2, release="0.9.0"), "0.10"),
        (some([10]), Wrap(4, 4, promoted=("all",), release="0.16.0"), "0.17"),
        (some([10]), Wrap(4, 4, instances=3), "do not divide 4"),
        (some([10]), Wrap(4, 4, instances=2, distributed=False), "need the distributed optimizer"),
        ([Parameter("a", 8, BF16, stored=MXFP8)], Wrap(4, 4, release="0.12.0"), "0.13"),
        ([Parameter("a", 8, BF16, stored=FP8)], Wrap(4, 4, release="0.8.0"), "0.9"),
        ([Parameter("a", 8, BF16, stored=NVFP4)], Wrap(4, 4), "nvfp4"),
        (some([10]) * 2, Wrap(4, 4), "same name"),
    ],
)
def test_what_megatron_has_not_is_refused(parameters: list[Parameter], wrap: Wrap, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        buffers(parameters, wrap)


def test_experts_have_a_buffer_where_they_are_spread_otherwise_than_the_rest() -> None:
    assert experts_apart(2, 4, 4, "0.12.0")
    assert not experts_apart(1, 4, 4)
    assert experts_apart(1, 1, 4)
    assert not experts_apart(1, 1, 4, "0.18.0")
