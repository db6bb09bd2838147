"""Gradient buckets of plain data parallelism."""

from __future__ import annotations

from tests.model.test_released import KEYS
from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.dims import elements
from trainledger.base.units import MIB
from trainledger.facts.dtypes import BF16, FP32
from trainledger.ledger.book import Book
from trainledger.ledger.buckets import broadcast_events, bucket_lines, bucket_sizes, flat_copies


def test_a_bucket_is_closed_by_the_gradient_that_reaches_its_limit() -> None:
    assert list(bucket_sizes([3, 3, 20, 30, 1], first=5, later=25)) == [6, 50, 1]


def test_buckets_hold_every_gradient_once() -> None:
    sizes = [7, 11, 13, 17, 19] * 3
    assert sum(bucket_sizes(sizes, 10, 40)) == sum(sizes)


def test_lines_of_buckets_hold_every_gradient_once_in_one_bucket_or_many() -> None:
    sizes = [1024 * 4096] * 12
    whole = 12 * 1024 * 4096 * 2
    for cap, count in ((-1, 1), (0, 4), (1 << 20, 12)):
        book = Book()
        lines = bucket_lines(book, sizes, BF16, cap)
        assert sum(book.lines[line].unit * copies for line, copies in lines) == whole
        assert sum(copies for _, copies in lines) == count


def test_a_weight_as_large_as_a_flat_copy_is_sent_as_it_is() -> None:
    assert flat_copies([(BF16, 100), (BF16, 30), (BF16, 30)], 200) == [(BF16, 0), (BF16, 60)]


def test_flat_copies_keep_dtypes_apart_in_order_of_their_first_tensor() -> None:
    tensors = [(FP32, 10), (BF16, 30), (FP32, 10), (BF16, 30), (BF16, 5), (BF16, 5)]
    assert flat_copies(tensors, 120) == [(FP32, 20), (BF16, 60), (BF16, 10)]


def test_two_flat_copies_are_under_way_at_a_time() -> None:
    book = Book()
    events = broadcast_events(book, [(BF16, (65 + number) * MIB) for number in range(8) for _ in range(2)])
    held = [sum(1 if event > 0 else -1 for event in events[:end]) for end in range(len(events) + 1)]
    assert max(held) == 2
    assert held[-1] == 0
    assert len(book.lines) == 8


def test_a_bucket_has_one_dtype() -> None:
    """A router that stays fp32 beside weights of 16 bits has its gradient in a bucket of its own kind."""
    keys = {"model_type": "deepseek_v3", **KEYS}
    plan = plan_of(
        keys,
        precision={"weights": "bf16", "compute": "bf16", "gradients": "bf16", "autocast": False},
        parallel={"strategy": "ddp", "world": 2},
        stack={"versions": {"torch": "2.13.0", "transformers": "5.24.0"}},
    )
    buckets = [line for line in estimate(plan).ledger.lines if line.name.startswith("bucket of")]
    wide = {elements(line.dims) for line in buckets if line.dtype == FP32}
    assert wide == {2 * KEYS["n_routed_experts"] * KEYS["hidden_size"]}  # two layers have experts
    assert {line.dtype for line in buckets} == {BF16, FP32}
