"""Overheads: intervals in order, sourced, and chosen by framework, sharding and setting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.base.sources import Basis, Source
from trainledger.base.units import GIB, MIB
from trainledger.facts.devices import DEVICES
from trainledger.facts.overheads import (
    CONTEXT,
    RESERVED,
    RUNS_LIKE,
    Interval,
    communicators,
    context,
    libraries,
    peers,
    reserved_over_allocated,
)


def test_an_interval_is_in_order() -> None:
    with pytest.raises(ValueError, match="low <= expected <= high"):
        Interval(2, 1, 3, "ratio", Source("a", "b"))


@pytest.mark.parametrize("ratio", RESERVED.values())
def test_reserved_is_never_below_allocated(ratio: Interval) -> None:
    assert 1 < ratio.low < ratio.expected < ratio.high < 2
    assert ratio.basis is Basis.ASSUMED
    assert "rows" in ratio.source.where


@pytest.mark.parametrize("sharded", [True, False])
@pytest.mark.parametrize("expandable", [True, False])
@pytest.mark.parametrize("framework", ["transformers", "deepspeed", "megatron", "colossalai", "pithtrain", *RUNS_LIKE])
def test_every_framework_has_a_ratio(framework: str, sharded: bool, expandable: bool) -> None:
    assert reserved_over_allocated(framework, sharded, expandable).unit == "ratio"


def test_expandable_segments_narrow_the_band() -> None:
    for sharded in (True, False):
        plain = reserved_over_allocated("transformers", sharded)
        expandable = reserved_over_allocated("transformers", sharded, True)
        assert expandable.high < plain.high
        assert expandable.expected < plain.expected


def test_frameworks_on_one_allocator_share_rows() -> None:
    assert reserved_over_allocated("torchtitan", True) == reserved_over_allocated("transformers", True)
    assert reserved_over_allocated("nemo", True) == reserved_over_allocated("megatron", False)


def test_contexts() -> None:
    for interval in CONTEXT.values():
        assert 200 * MIB < interval.low <= interval.expected <= interval.high < 1.5 * GIB
    assert context("gfx942") == CONTEXT["any"]
    assert context("sm70").high == 1_408_237_568  # read off a V100 before the model was loaded
    assert all(context(device.architecture).low > 0 for device in DEVICES.values())


def test_releases_that_load_all_kernels_expect_them() -> None:
    for architecture, row in CONTEXT.items():
        assert context(architecture, "1.12.1").expected == row.high
        assert context(architecture, "1.13.0") == context(architecture, "") == row


def test_one_rank_has_no_communicator() -> None:
    assert communicators(1).high == 0
    assert communicators(8, 0).high == 0
    assert communicators(2).low > 0


@given(st.integers(2, 10_000), st.integers(1, 12))
def test_more_communicators_never_hold_less(world: int, groups: int) -> None:
    fewer, more = communicators(world, groups), communicators(world, groups + 1)
    assert fewer.expected <= more.expected
    assert fewer.high <= more.high <= 6 * GIB


def test_libraries_of_kernel_sets_add_to_the_context() -> None:
    (engine,) = libraries(["te", "liger"])
    assert engine.low < engine.expected < engine.high
    assert libraries([]) == ()


def test_peers_take_buffers_each() -> None:
    """All-to-all over eight H100: 3.28 GB (github.com/NVIDIA/nccl/issues/1685)."""
    (within,) = peers("sm90", 7, 0)
    assert within.expected == 7 * 480 * MIB == pytest.approx(3.28 * GIB, rel=0.001)
    near, far = peers("sm90", 7, 8)
    assert far.expected / 8 < near.expected / 7
    assert peers("sm90", 0, 0) == ()
    (slow,) = peers("sm86", 1, 0)
    assert slow.expected == far.expected / 8
