"""Buffers of parameters that are not cut, against those that Megatron-Core's own code made."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.facts.dtypes import BF16
from trainledger.lines.param_buffers import Parameter, Wrap, buffers
from trainledger.lines.param_packing import Matrix, packed
from trainledger.lines.param_ranges import shard

# rows, columns of a layer's matrices in the order in which they are built
LAYER = {"proj": (64, 64), "qkv": (128, 64), "fc1": (272, 64), "fc2": (64, 136)}
CHUNK = tuple(
    Parameter(f"{layer}.{name}", rows * columns, BF16, rows=rows)
    for layer in range(3)
    for name, (rows, columns) in LAYER.items()
)
# LayerWiseDistributedOptimizer.compute_full_param_layout over 4 ranks, buckets of 60,000 elements
EXPECTED = {
    "0.19.0": {
        "2.fc1": 0, "1.fc1": 17408, "2.fc2": 34816, "2.qkv": 43520, "1.fc2": 52224, "2.proj": 60928, "0.fc1": 69632,
        "0.fc2": 87040, "1.qkv": 104448, "1.proj": 112640, "0.qkv": 121856, "0.proj": 130048,
    },
    "main@2026-08-22": {
        "2.fc1": 0, "2.proj": 17408, "1.fc1": 25088, "1.proj": 42496, "2.fc2": 50176, "0.fc2": 58880, "1.fc2": 75264,
        "2.qkv": 83968, "1.qkv": 92160, "0.fc1": 100352, "0.proj": 117760, "0.qkv": 135168,
    },
}  # fmt: skip
BUCKETS = {"0.19.0": [(0, 69632), (69632, 139264)], "main@2026-08-22": [(0, 100352), (100352, 169984)]}


@pytest.mark.parametrize("release", EXPECTED)
def test_matrices_lie_where_megatron_packs_them(release: str) -> None:
    (buffer,) = buffers(CHUNK, Wrap(4, 4, bucket=60_000, release=release))
    assert {one.parameter.name: one.start for one in buffer.placed} == EXPECTED[release]
    assert [(one.start, one.end) for one in buffer.buckets] == BUCKETS[release]
    assert buffer.unpadded == sum(one.elements for one in CHUNK)
    pieces = [piece for rank in range(4) for piece in shard(buffer, rank)]
    assert sorted(piece.parameter.name for piece in pieces) == sorted(one.name for one in CHUNK)
    assert all(piece.within == (0, piece.parameter.elements) for piece in pieces)


def test_other_parameters_have_a_buffer_of_their_own() -> None:
    chunk = (Parameter("norm", 64, BF16), *CHUNK)
    names = [one.name for one in buffers(chunk, Wrap(4, 4))]
    assert names == ["bf16 weights, fp32 gradients", "bf16 weights, fp32 gradients, whole parameters"]
    assert [one.whole for one in buffers(chunk, Wrap(4, 4, distributed=False))] == [False]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=12),
    st.integers(1, 5),
    st.one_of(st.none(), st.integers(1, 2000)),
    st.sampled_from(sorted(EXPECTED)),
)
def test_no_shard_cuts_a_parameter(shapes: list[tuple[int, int]], ranks: int, bucket: int | None, release: str) -> None:
    matrices = [Matrix(rows * columns, rows) for rows, columns in shapes]
    found = packed(matrices, ranks, 128 * ranks, bucket, release)
    assert sorted(at for one in found for at in one.placed) == list(range(len(matrices)))
    for one in found:
        length, rest = divmod(one.end - one.start, ranks)
        assert rest == 0
        assert all(
            (start - one.start) // length == (start + matrices[at].elements - 1 - one.start) // length
            for at, start in one.placed.items()
        )
