"""Linear attention by packages' kernels: what they keep, byte for byte, and that backward gives back all it takes."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import BF16, FP32, DType
from trainledger.ledger import delta_kernels
from trainledger.ledger.delta_rule import Parts
from trainledger.ledger.engine import Backward
from trainledger.ledger.tape import Prim, Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.operations_linear import LinearHeads

TOKENS = 256
HEADS = LinearHeads(keys=2, values=4, key_width=128, value_width=64)
RULE, CONVOLUTION = {"flash-linear-attention": "0.6.0"}, {"causal-conv1d": "1.5.0"}


def written() -> tuple[Tape, int]:
    """The rule on a tape, after what makes its inputs."""
    t = Tape()
    tokens = (Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, TOKENS))

    def made(dims: Dims, dtype: DType) -> int:
        return t.run(Prim("made", (), (t.fresh((*tokens, *dims), dtype, True),), (), (), ()))

    q, k = (made(HEADS.key_dims, BF16) for _ in range(2))
    parts = Parts(q, k, made(HEADS.value_dims, BF16), made(HEADS.gates, BF16), made(HEADS.gates, FP32))
    return t, delta_kernels.chunked(t, parts, HEADS)


def test_what_the_rule_keeps() -> None:
    """Queries and keys normalised, with their norms; values; decays summed up in fp32; strengths; squares of chunks."""
    t, _ = written()
    kept = sum(t.dtype[x].bytes_of(TOKENS * t.dims[x][2].size * (t.dims[x][3:] or (Axis(Dim.ONE, 1),))[0].size)
               for x in t.prims[-1].saves)  # fmt: skip
    queries_and_keys = 2 * 2 * (128 * 2 + 4)
    assert kept == TOKENS * (queries_and_keys + 4 * 64 * 2 + 4 * 4 + 4 * 2 + 4 * 64 * 2)


def test_backward_gives_back_what_it_takes() -> None:
    t, out = written()
    forward = run_forward(t, frozenset({out}), True)
    back = Backward(t, dict(forward.held), frozenset())
    back.seed(out, "gradient")
    back.run(0, len(t.prims))
    born, died = ([abs(event) for event in back.events if (event > 0) is sign] for sign in (True, False))
    assert Counter(born) + Counter(storage + 1 for storage in forward.held) <= Counter(died)


@pytest.mark.parametrize("versions", [RULE, CONVOLUTION, {**RULE, **CONVOLUTION}])
def test_kernels_take_less(versions: dict[str, str]) -> None:
    model = {"model_type": "qwen3_5_text", "num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 512}
    plain, kernels = (
        estimate(plan_of(model, stack={"versions": {"torch": "2.13.0", "transformers": "5.24.0", **more}}))
        for more in ({}, versions)
    )
    assert kernels.peak.allocated.expected < plain.peak.allocated.expected
    assert any(next(iter(versions)) in note for note in kernels.notes.warnings)


@pytest.mark.parametrize("more", [{}, RULE])
def test_heads_that_the_module_repeats_stay_until_it_returns(more: dict[str, str]) -> None:
    """Before Transformers 5.23: a layer that keeps nothing holds them beside what the rule makes."""
    model = {"model_type": "qwen3_5_text", "num_hidden_layers": 4, "hidden_size": 512, "intermediate_size": 512}
    older, newer = (
        max(one.allocated for one in found.ledger.moments if one.name.endswith("forward"))
        for found in (
            estimate(plan_of(model, stack={"recompute": "full", "versions": {"transformers": release, **more}}))
            for release in ("5.20.0", "5.24.0")
        )
    )
    assert older > newer
