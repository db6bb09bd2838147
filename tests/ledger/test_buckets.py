"""Gradient buckets, and what is left unsplit of shared segments."""

from __future__ import annotations

from trainledger.base.units import MIB
from trainledger.facts.allocator import CUDA, EXPANDABLE
from trainledger.ledger.buckets import bucket_sizes
from trainledger.ledger.remainders import unsplit


def test_a_bucket_is_closed_by_the_gradient_that_reaches_its_limit() -> None:
    assert list(bucket_sizes([3, 3, 20, 30, 1], first=5, later=25)) == [6, 50, 1]


def test_buckets_hold_every_gradient_once() -> None:
    sizes = [7, 11, 13, 17, 19] * 3
    assert sum(bucket_sizes(sizes, 10, 40)) == sum(sizes)


def test_seventeen_small_matrices_fill_a_segment_and_the_last_keeps_its_end() -> None:
    size = MIB + MIB // 8
    assert unsplit([size] * 17, CUDA) == 20 * MIB - 17 * size
    assert unsplit([size] * 16, CUDA) == 0


def test_what_is_large_enough_is_split_off_and_used_again() -> None:
    assert unsplit([9 * MIB, 9 * MIB, MIB + 512], CUDA) == MIB - 512


def test_small_tensors_whole_segments_and_expandable_ones_leave_nothing() -> None:
    assert unsplit([MIB, 512, 12 * MIB], CUDA) == 0
    assert unsplit([11 * MIB], CUDA) == MIB
    assert unsplit([MIB + 512] * 40, EXPANDABLE) == 0
