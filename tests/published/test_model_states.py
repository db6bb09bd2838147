"""Published numbers of model states: bytes per parameter, shares, totals, ZeRO, disk. Tolerances are in each test."""

from __future__ import annotations

import pytest

from trainledger.answer.states import (
    adapter_states,
    bytes_per_parameter,
    checkpoint_bytes,
    rank_bytes,
    rank_formula,
    shares,
    states,
)
from trainledger.base.units import GB, TB, TIB
from trainledger.facts.dtypes import BF16, DTYPES, NF4_TYPE
from trainledger.facts.optimizer_bytes import state_bytes
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.facts.recipes import RECIPES, SPLITS, Copy, Group, Grouping

ADAM = (Copy.FIRST, Copy.SECOND)

# weights, gradients (the second buffer included), master weights, optimizer moments, total; bytes per parameter.
# Sources: ZeRO (arXiv:1910.02054, section 3.1), Megatron Core's distributed optimizer page, Mixed Precision Training
# (arXiv:1710.03740), 8-bit Optimizers (arXiv:2110.02861). Exact.
TABLE = {
    "fp32": (4, 4, 0, 8, 16),
    "mixed": (2, 2, 4, 8, 16),
    "bf16-fp32grad": (2, 4, 4, 8, 18),
    "fp16-fp32maingrad": (2, 6, 4, 8, 20),
    "bf16-no-master": (2, 2, 0, 8, 12),
    "bf16": (2, 2, 0, 4, 8),
    "sgd-momentum": (2, 2, 0, 4, 8),
    "fp32-sgd": (4, 4, 0, 0, 8),
    "adam-8bit": (2, 2, 4, 2, 10),
    "frozen": (2, 0, 0, 0, 2),
}


def test_the_table_names_every_recipe() -> None:
    assert set(TABLE) == set(RECIPES)


@pytest.mark.parametrize("name", TABLE)
def test_bytes_per_parameter(name: str) -> None:
    recipe = RECIPES[name]
    columns = ((Copy.WEIGHTS,), (Copy.GRADIENTS, Copy.MAIN_GRADIENTS), (Copy.MASTER,), (*ADAM, Copy.MOMENTUM))
    found = (*(bytes_per_parameter(recipe, column) for column in columns), bytes_per_parameter(recipe))
    assert found == TABLE[name]


# Percent of weights, gradients, optimizer. Source: the sums above; exact.
@pytest.mark.parametrize(
    ("name", "grouping", "percent"),
    [
        ("mixed", Grouping.WITH_OPTIMIZER, (12.5, 12.5, 75)),
        ("mixed", Grouping.WITH_WEIGHTS, (37.5, 12.5, 50)),
        ("fp32", Grouping.WITH_OPTIMIZER, (25, 25, 50)),
        ("fp32-sgd", Grouping.WITH_OPTIMIZER, (50, 50, 0)),
        ("adam-8bit", Grouping.WITH_OPTIMIZER, (20, 20, 60)),
    ],
)
def test_shares(name: str, grouping: Grouping, percent: tuple[float, ...]) -> None:
    found = [share * 100 for _, share in shares(RECIPES[name], grouping)]
    assert found == pytest.approx(percent, abs=1e-9)


def test_adam_is_never_under_half_of_the_states() -> None:
    """Where Adam's moments are kept in the update's precision, the optimizer's share is at least a half."""
    with_adam = [recipe for recipe in RECIPES.values() if recipe.dtype(Copy.SECOND)]
    assert with_adam
    for recipe in with_adam:
        assert dict(shares(recipe, Grouping.WITH_OPTIMIZER))[Group.OPTIMIZER] >= 0.5


# Decimal GB of 16-byte states. GPT-2 1.5B: ZeRO, section 1 (24 GB). The others: the same product; exact.
@pytest.mark.parametrize(("parameters", "size"), [(1_500_000_000, 24), (7 * GB, 112), (13 * GB, 208), (70 * GB, 1120)])
def test_sixteen_byte_totals(parameters: int, size: int) -> None:
    assert states(parameters, ("mixed",)).recipes[0].total_bytes == size * GB


# 5e12 parameters, experts counted whether active or not: decimal TB, exact; TiB to the two digits printed.
@pytest.mark.parametrize(
    ("name", "decimal", "binary"),
    [("fp32", 80, 72.76), ("bf16-fp32grad", 90, 81.85), ("fp16-fp32maingrad", 100, 90.95)],
)
def test_five_trillion_parameters(name: str, decimal: int, binary: float) -> None:
    (recipe,) = states(5 * TB, (name,)).recipes
    assert recipe.total_bytes == decimal * TB
    assert dict(recipe.totals)["TiB"] == pytest.approx(binary, abs=0.005)
    assert recipe.total_bytes / TIB == dict(recipe.totals)["TiB"]


# Megatron Core, distributed optimizer: the page's table of bytes per parameter; exact text.
@pytest.mark.parametrize(
    ("name", "plain", "divided"),
    [("fp16-fp32maingrad", "20", "4 + 16/d"), ("bf16-fp32grad", "18", "6 + 12/d"), ("fp32", "16", "8 + 8/d")],
)
def test_distributed_optimizer(name: str, plain: str, divided: str) -> None:
    recipe = RECIPES[name]
    assert rank_formula(recipe, SPLITS["ddp"]) == plain
    assert rank_formula(recipe, SPLITS["distributed-optimizer"]) == divided


@pytest.mark.parametrize("ranks", [1, 8, 64, 1024])
def test_distributed_optimizer_at_five_trillion(ranks: int) -> None:
    """6 + 12/d of 5e12 parameters still keeps 30 TB on every rank. Tolerance: one element per divided copy."""
    held = rank_bytes(RECIPES["bf16-fp32grad"], SPLITS["distributed-optimizer"], 5 * TB, ranks)
    assert held == pytest.approx(5 * TB * (6 + 12 / ranks), abs=12)
    assert held > 30 * TB


# ZeRO (arXiv:1910.02054), figure 1 and table 1: 7.5e9 parameters, K = 12, GB on a device, to the digits printed.
@pytest.mark.parametrize(
    ("ranks", "printed"),
    [
        (1, (120, 120, 120)),
        (4, (52.5, 41.3, 30)),
        (16, (35.6, 21.6, 7.5)),
        (64, (31.4, 16.6, 1.88)),
        (256, (30.4, 15.4, 0.47)),
        (1024, (30.1, 15.1, 0.12)),
    ],
)
def test_zero_stages(ranks: int, printed: tuple[float, ...]) -> None:
    recipe = RECIPES["mixed"]
    assert rank_bytes(recipe, SPLITS["ddp"], 7_500_000_000, ranks) == 120 * GB
    for stage, size in zip(("zero1", "zero2", "zero3"), printed, strict=True):
        held = rank_bytes(recipe, SPLITS[stage], 7_500_000_000, ranks)
        assert held / GB == pytest.approx(size, abs=0.055)  # 41.25 is printed as 41.3, 1.875 as 1.88 or 1.9


def test_zero_formulas() -> None:
    """N(bp + bg + bo/D), N(bp + (bg + bo)/D), N(bp + bg + bo)/D with bp = 2, bg = 2, bo = 12; exact."""
    found = [rank_formula(RECIPES["mixed"], SPLITS[stage]) for stage in ("zero1", "zero2", "zero3")]
    assert found == ["4 + 12/d", "2 + 14/d", "16/d"]


def test_each_zero_stage_divides_the_next_largest_group() -> None:
    """Optimizer states first (75 %), then gradients (12.5 %), then weights (12.5 %)."""
    (recipe,) = states(7 * GB, ("mixed",), 8).recipes
    sizes = {row.strategy: row.bytes for row in recipe.per_rank}
    assert sizes["ddp"] > sizes["zero1"] > sizes["zero2"] > sizes["zero3"] == 14 * GB
    assert sizes["ddp"] - sizes["zero1"] > sizes["zero1"] - sizes["zero2"] == sizes["zero2"] - sizes["zero3"]


def test_seven_billion_does_not_fit_a_card_of_80_gb_replicated() -> None:
    (recipe,) = states(7 * GB, ("mixed",), 8).recipes
    sizes = {row.strategy: row.bytes for row in recipe.per_rank}
    assert sizes["ddp"] > 80 * GB > sizes["zero3"]


def test_replication_does_not_shrink_a_rank() -> None:
    sizes = {rank_bytes(RECIPES["mixed"], SPLITS["ddp"], 7 * GB, ranks) for ranks in (1, 2, 64)}
    assert sizes == {112 * GB}


def test_checkpoint() -> None:
    """P*bp = 14 GB for 7B in bf16; P(bp + bo) = 98 GB; with the exported weights beside it above 100 GB. Exact."""
    disk = checkpoint_bytes(RECIPES["mixed"], 7 * GB)
    assert (disk.weights_only, disk.full, disk.full_and_export) == (14 * GB, 98 * GB, 112 * GB)


def test_bytes_per_element() -> None:
    """fp32 4, bf16 and fp16 2, fp8 and int8 1, 4-bit 0.5; exact."""
    found = {name: DTYPES[name].bytes_of(1000) / 1000 for name in ("fp32", "bf16", "fp16", "fp8", "int8", "nf4")}
    assert found == {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1, "nf4": 0.5}


def test_adapters() -> None:
    """N*b_base + N_L*(bp + bg + bo): 7e9 in bf16 (14 GB) or 4 bits (3.5 GB, scales apart) and 40e6 trained; exact."""
    assert adapter_states(7 * GB, BF16, 40_000_000, RECIPES["mixed"]) == 14 * GB + 640_000_000
    assert adapter_states(7 * GB, NF4_TYPE, 40_000_000, RECIPES["fp32"]) == 3_500_000_000 + 640_000_000


def test_adafactor_is_negligible_beside_adam() -> None:
    """Row and column factors grow as the square root of a square matrix: 2n of n*n elements. Exact.

    Source: Adafactor, arXiv:1804.04235, section 3.
    """
    sizes = {}
    for name in ("adafactor", "adamw"):
        tensors = state_bytes(OPTIMIZERS[name], (4096, 4096), BF16)
        sizes[name] = sum(tensor.elements for tensor in tensors if tensor.kind != "step")
    assert sizes == {"adafactor": 2 * 4096, "adamw": 2 * 4096 * 4096}
