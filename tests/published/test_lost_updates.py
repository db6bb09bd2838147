"""The worked example of an update that 16 bits lose, and the warning. Spacings follow IEEE 754; exact."""

from __future__ import annotations

import pytest

from trainledger.answer.precision import lost_update, warnings
from trainledger.answer.states import states
from trainledger.facts.dtypes import BF16, FP16, FP32, DType


@pytest.mark.parametrize(
    ("dtype", "exponent", "lost"), [(FP16, -10, True), (BF16, -7, True), (FP32, -23, False)], ids=str
)
def test_one_plus_one_ten_thousandth(dtype: DType, exponent: int, lost: bool) -> None:
    """w = 1.0, dw = 1e-4: the spacing at 1 is 2^-10 in fp16, 2^-7 in bf16, 2^-23 in fp32."""
    update = lost_update(dtype, 1.0, 1e-4)
    assert update.spacing == 2.0**exponent
    assert update.half == 2.0 ** (exponent - 1)
    assert update.lost is lost


def test_the_spacings_as_printed() -> None:
    assert lost_update(FP16, 1.0, 1e-4).spacing == pytest.approx(9.8e-4, abs=0.05e-4)
    assert lost_update(FP32, 1.0, 1e-4).spacing == pytest.approx(1.2e-7, abs=0.05e-7)


@pytest.mark.parametrize(
    ("name", "warned"), [("bf16", True), ("bf16-no-master", True), ("mixed", False), ("fp32", False)]
)
def test_the_warning_names_its_reason(name: str, warned: bool) -> None:
    (recipe,) = states(1000, (name,)).recipes
    assert bool(recipe.warnings) is warned
    assert all("half a unit in the last place" in text and "master" in text for text in recipe.warnings)


def test_masters_end_the_warning() -> None:
    assert warnings(FP16, FP32) == ()
    assert warnings(FP16, None)[0].smallest == 2.0**-11
    assert warnings(BF16, None)[0].smallest == 2.0**-8
    assert len(warnings(BF16, BF16)) == 1
