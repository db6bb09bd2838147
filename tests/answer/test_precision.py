"""Lost updates: against torch's own rounding, and at the edges."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.answer.precision import lost_update
from trainledger.facts.dtypes import BF16, FP16, INT8, DType

ORDINARY = st.floats(0.01, 1000.0)
UPDATES = st.floats(-10.0, 10.0)


@given(weight=ORDINARY, update=UPDATES, dtype=st.sampled_from((BF16, FP16)))
def test_agrees_with_torch(weight: float, update: float, dtype: DType) -> None:
    torch = pytest.importorskip("torch")
    kind = {"bf16": torch.bfloat16, "fp16": torch.float16}[dtype.name]
    stored = torch.tensor(weight, dtype=torch.float64).to(kind).double()
    exact = stored + update
    if abs(exact) < 0.001:  # below fp16's normal range
        return
    answer = lost_update(dtype, float(stored), update)
    if dtype is FP16:  # torch rounds doubles to bf16 by way of fp32, which may round twice
        assert answer.stored == float(exact.to(kind))
    assert answer.lost is (update != 0 and answer.stored == float(stored))


@pytest.mark.parametrize(
    ("update", "lost"),
    [(2**-11, True), (2**-11 + 2**-30, False), (-(2**-12), True), (-(2**-12) - 2**-30, False), (0.0, False)],
)
def test_ties_go_to_even_and_spacing_halves_below_a_power_of_two(update: float, lost: bool) -> None:
    assert lost_update(FP16, 1.0, update).lost is lost


def test_zero_loses_nothing() -> None:
    answer = lost_update(BF16, 0.0, 1e-30)
    assert (answer.lost, answer.spacing) == (False, 0.0)


@pytest.mark.parametrize(("weight", "update"), [(math.nan, 0.0), (1.0, math.inf)])
def test_refuses_what_is_not_finite(weight: float, update: float) -> None:
    with pytest.raises(ValueError, match="finite"):
        lost_update(BF16, weight, update)


def test_refuses_integers() -> None:
    with pytest.raises(ValueError, match="mantissa"):
        lost_update(INT8, 1.0, 0.1)
