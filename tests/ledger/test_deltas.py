"""What PEFT's other methods keep of a frozen 16-bit layer, as real PEFT 0.21.2 kept it on the same sizes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32
from trainledger.ledger.deltas import Call, linear
from trainledger.ledger.nn import linear as plain
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.build import model_of
from trainledger.model.deltas import Layer, delta_of, factors

TOKENS, IN, OUT = 91, 96, 160
HIGH, RESULT, WHOLE, SQUARE = 4 * TOKENS * IN, 2 * TOKENS * OUT, 4 * IN * OUT, 2 * IN * IN


def kept(kind: str, rank: int = 0, release: str = "", **options: Any) -> int:
    """Bytes kept beside the result and the input, not rounded."""
    delta = delta_of(Layer("lin", OUT, IN, rank, FP32, kind, 0.0, release, options))
    tape = Tape(None)
    tokens, inner, outer = (Axis(Dim.TOKENS, TOKENS),), Axis(Dim.COLUMNS, IN), Axis(Dim.ROWS, OUT)
    x = tape.outside((*tokens, inner), BF16, True)
    weight = tape.outside((outer, inner), BF16, False)
    values = tuple(tape.outside(one.dims, FP32, one.tuned) for one in delta.weights)
    call = Call(x, tokens, (outer,), outer, inner, values, None, 0.0, delta.inside, delta.parts)
    out = linear(tape, kind, lambda value: plain(tape, value, (*tokens, outer), weight), call)
    held = run_forward(tape, frozenset({out}), saving=True).held
    own = tape.store[out]
    found = [tape.storages[one] for one in held if one not in (EXTERNAL, own)]
    return sum(one.dtype.bytes_of(_count(one.dims)) for one in found)


def _count(dims: tuple[Axis, ...]) -> int:
    count = 1
    for axis in dims:
        count *= axis.size
    return count


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"kind": "ia3"}, 4 * OUT + RESULT),
        ({"kind": "ia3", "feedforward_modules": ["lin"]}, 4 * IN + HIGH),
        ({"kind": "adalora", "init_r": 12}, 4 + HIGH + 4 * 12 * (IN + TOKENS) + 4 * TOKENS * OUT),
        ({"kind": "adalora", "init_r": 12, "release": "0.18.1"}, 4 + HIGH + 4 * 12 * (IN + TOKENS)),
        ({"kind": "loha", "rank": 8}, WHOLE + HIGH),
        ({"kind": "lokr", "rank": 8}, WHOLE + HIGH),
        ({"kind": "lokr", "rank": 8, "decompose_both": True, "decompose_factor": 4}, WHOLE + HIGH + 4 * 40 * 24),
        ({"kind": "vera", "rank": 32}, 4 * TOKENS * (32 + OUT)),
        ({"kind": "oft", "oft_block_size": 32}, HIGH + 4 * 4 * 3 * 32 * 32),
        ({"kind": "boft", "boft_block_size": 8}, 3 * SQUARE + 6 * OUT + 3 * 4 * 12 * 8 * 8 + RESULT),
        ({"kind": "fourierft", "n_frequency": 50}, WHOLE + HIGH + 2 * 8 * 50),
    ],
)
def test_bytes_that_are_kept(case: dict[str, Any], expected: int) -> None:
    assert kept(**case) == expected


@pytest.mark.parametrize(
    ("size", "factor", "pair"),
    [
        (256, -1, (16, 16)),
        (128, -1, (8, 16)),
        (127, -1, (1, 127)),
        (128, 4, (4, 32)),
        (96, 7, (6, 16)),
        (3072, 4, (4, 768)),
    ],
)
def test_factors(size: int, factor: int, pair: tuple[int, int]) -> None:
    assert factors(size, factor) == pair


@pytest.mark.parametrize(
    ("kind", "rank", "options", "count"),
    [  # numbers that the method comparison of PEFT states for Llama-3.2-3B, queries and values
        ("adalora", 0, {"init_r": 64}, 18_353_664),
        ("boft", 0, {"boft_block_size": 4}, 802_816),
        ("fourierft", 0, {"n_frequency": 1000}, 56_000),
        ("lokr", 32, {"decompose_factor": 4}, 2_294_656),
        ("vera", 256, {}, 129_024),
    ],
)
def test_trained_elements(kind: str, rank: int, options: dict[str, Any], count: int) -> None:
    deltas = [delta_of(Layer("q", outer, 3072, rank, FP32, kind, 0.0, "0.18.1", options)) for outer in (3072, 1024)]
    assert 28 * sum(weight.elements for delta in deltas for weight in delta.weights if weight.tuned) == count


@pytest.mark.parametrize("kind", ["adalora", "ia3", "vera", "loha", "lokr", "oft", "boft", "fourierft", "ln-tuning"])
@pytest.mark.parametrize("recompute", ["none", {"kind": "full", "reentrant": True}])
def test_every_method_runs(kind: str, recompute: Any) -> None:
    targets = ["input_layernorm"] if kind == "ln-tuning" else ["q_proj", "down_proj"]
    adapter = {"kind": kind, "targets": targets, "options": {"oft_block_size": 32} if kind == "oft" else {}}
    found = estimate(plan_of(LLAMA, adapter=adapter, stack={"recompute": recompute}))
    assert 0 < found.parameters.trainable < found.parameters.total


@pytest.mark.parametrize(
    ("versions", "kept"),
    [({}, 54), ({"accelerate": "1.14.0"}, 0), ({"accelerate": "1.14.0", "ms-swift": "3.9.0"}, 54)],
)
def test_scores_of_adalora_are_kept_where_they_are_asked_for(versions: dict[str, str], kept: int) -> None:
    plan = plan_of(LLAMA, adapter={"kind": "adalora", "targets": ["q_proj", "v_proj"]}, stack={"versions": versions})
    names = [buffer.name for buffer in model_of(plan).buffers if "ipt" in buffer.name or "unc" in buffer.name]
    assert len(names) == kept


def test_rows_and_columns_of_blocks_are_kept() -> None:
    plan = plan_of(LLAMA, adapter={"kind": "oft", "targets": ["q_proj"], "options": {"oft_block_size": 32}})
    found = [buffer.elements for buffer in model_of(plan).buffers if "oft_R" in buffer.name]
    assert found == [32 * 31 // 2] * 2 * LLAMA["num_hidden_layers"]
