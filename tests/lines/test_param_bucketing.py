"""When a bucket of Megatron-Core's buffers is full."""

from __future__ import annotations

import pytest

from trainledger.lines.param_bucketing import Bucketing, bucket_of

ON = Bucketing(overlap=True)


@pytest.mark.parametrize(("ranks", "elements"), [(1, 40_000_000), (40, 40_000_000), (64, 64_000_000)])
def test_the_default_grows_with_the_ranks(ranks: int, elements: int) -> None:
    assert bucket_of(ON, ranks) == elements


def test_context_parallel_ranks_count_from_0_12_on() -> None:
    assert bucket_of(ON, 128, context=2, release="0.12.0") == 128_000_000
    assert bucket_of(ON, 128, context=2, release="0.11.0") == 64_000_000


def test_a_size_or_a_number_that_is_given() -> None:
    assert bucket_of(Bucketing(size=7, overlap=True), 64) == 7
    assert bucket_of(Bucketing(number=3, elements=100, overlap=True), 64) == 33


@pytest.mark.parametrize(
    "given",
    [
        Bucketing(),
        Bucketing(size=7),
        Bucketing(overlap=True, stage=1),
        Bucketing(overlap=True, chunk=1),
        Bucketing(overlap=True, at_step=True),
    ],
)
def test_one_bucket_without_overlap_and_after_the_first_chunk(given: Bucketing) -> None:
    assert bucket_of(given, 64) is None
    assert bucket_of(Bucketing(overlap=True, at_step=True), 64, release="0.8.0") == 64_000_000
