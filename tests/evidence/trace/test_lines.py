"""A record as lines: names, dims, accounts, and the blocks that the allocator really gives."""

from __future__ import annotations

import pytest

from trainledger.allocator.replay import replay
from trainledger.base.dims import Axis, Dim
from trainledger.base.sources import Basis
from trainledger.evidence.trace.lines import Trace, dims_of, trace_of
from trainledger.evidence.trace.record import Birth, Record, Stretch
from trainledger.lines.line import Account

MIB = 2**20
WEIGHT = Birth(11 * MIB + 512 * 1024, Account.WEIGHTS, "layers.0.w", "weights", "bfloat16", (23, 262144))
BIRTHS = (
    WEIGHT,
    WEIGHT._replace(module="layers.1.w"),
    Birth(100, Account.ACTIVATIONS, "layers.1.act", "mul.Tensor", "float32", (25,)),
    Birth(2048, Account.BACKWARD, "layers.1", "kernel: _scaled_dot_product_cudnn_attention_backward x", "fp32", (512,)),
)
RECORD = Record(
    BIRTHS, (Stretch("init", (1, 2)), Stretch("step 1: forward", (3, 4, -4, -3))), versions={"torch": "2.13.0"}
)


@pytest.fixture
def trace() -> Trace:
    return trace_of(RECORD, {262144: Dim.VOCAB})


def test_equal_layers_are_one_line(trace: Trace) -> None:
    weights = [line for line in trace.lines if line.account is Account.WEIGHTS]
    assert [line.name for line in weights] == ["layers.*.w"]
    assert weights[0].dims == (Axis(Dim.ELEMENTS, 23), Axis(Dim.VOCAB, 262144))
    assert trace.segments[0].events == (1, 1)


def test_blocks_are_the_allocators(trace: Trace) -> None:
    """A segment of 12 MiB whose last 512 KiB are not split off."""
    assert trace.lines[0].unit == 12 * MIB
    assert trace.moments[0].allocated == 24 * MIB
    assert trace.moments[1].allocated == replay(trace.stream).peaks.allocated
    assert trace.reserved == (("init", 24 * MIB), ("step 1: forward", 26 * MIB))


def test_what_is_known(trace: Trace) -> None:
    act, inside = trace.lines[1:]
    assert (act.name, act.basis) == ("layers.*.act: mul.Tensor", Basis.COUNTED)
    assert "torch 2.13.0" in str(act.source)
    assert inside.basis is Basis.ASSUMED


def test_scalars_have_one_dim() -> None:
    assert dims_of((), {}) == (Axis(Dim.ONE, 1),)
