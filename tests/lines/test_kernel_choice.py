"""Which attention kernel runs, by the plan's word, release, architecture, dtype and shape."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainledger.facts.dtypes import BF16, FP16, FP32
from trainledger.facts.kernels_attention import WORDS, Kernel
from trainledger.lines.kernel_choice import Asked, Choice, choose, given_masks, level
from trainledger.plan.names import Attention

BASE = Asked("sdpa", BF16, 128, torch="2.14.1", architecture="sm80", transformers="5.24.0")


def kernel(**changes: object) -> Kernel:
    return choose(replace(BASE, **changes)).kernel  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("torch", "architecture", "expected"),
    [
        ("2.14.1", "sm80", Kernel.FLASH),
        ("2.14.1+cu130", "sm90", Kernel.CUDNN),
        ("2.14.1", "sm100", Kernel.CUDNN),
        ("2.14.1", "sm103", Kernel.CUDNN),
        ("2.14.1", "sm120", Kernel.FLASH),
        ("2.14.1", "sm89", Kernel.FLASH),
        ("2.10.0", "sm90", Kernel.FLASH),
        ("2.9.0", "sm90", Kernel.CUDNN),
        ("2.9.0", "sm103", Kernel.FLASH),
        ("2.5.0", "sm90", Kernel.CUDNN),
        ("2.5.1", "sm90", Kernel.FLASH),
        ("2.4.1", "sm90", Kernel.FLASH),
        ("2.14.1", "sm75", Kernel.MATH),
        ("2.14.1", "gfx942", Kernel.FLASH),
        ("", "", Kernel.FLASH),
    ],
)
def test_the_order_of_a_release_on_an_architecture(torch: str, architecture: str, expected: Kernel) -> None:
    assert kernel(torch=torch, architecture=architecture) is expected


def test_the_environment_sets_cudnn_back() -> None:
    assert kernel(architecture="sm90", deprioritised=True) is Kernel.FLASH
    assert kernel(architecture="sm90", deprioritised=True, dtype=FP32) is Kernel.EFFICIENT


@pytest.mark.parametrize("architecture", ["sm60", "sm70", "sm75", "sm80", "sm89", "sm90", "sm120"])
def test_fp32_runs_the_memory_efficient_kernel(architecture: str) -> None:
    assert kernel(architecture=architecture, dtype=FP32) is Kernel.EFFICIENT


def test_older_cards_run_fp16_but_not_bf16_in_one_kernel() -> None:
    assert kernel(architecture="sm75", dtype=FP16) is Kernel.EFFICIENT
    assert kernel(architecture="sm70", dtype=BF16) is Kernel.MATH


@pytest.mark.parametrize(
    ("torch", "architecture", "head", "value", "expected"),
    [
        ("2.14.1", "sm80", 192, 128, Kernel.EFFICIENT),
        ("2.14.1", "sm90", 192, 128, Kernel.CUDNN),
        ("2.13.0", "sm90", 192, 128, Kernel.EFFICIENT),
        ("2.13.0", "sm100", 192, 128, Kernel.CUDNN),
        ("2.10.0", "sm100", 192, 128, Kernel.EFFICIENT),
        ("2.13.0", "sm100", 192, 192, Kernel.FLASH),
        ("2.14.1", "sm90", 128, 64, Kernel.CUDNN),
        ("2.14.1", "sm90", 64, 192, Kernel.EFFICIENT),
        ("2.14.1", "sm80", 128, 128, Kernel.FLASH),
        ("2.14.1", "sm80", 64, 36, Kernel.MATH),
    ],
)
def test_values_of_another_head_dim(torch: str, architecture: str, head: int, value: int, expected: Kernel) -> None:
    assert kernel(torch=torch, architecture=architecture, head=head, value=value) is expected


def test_a_mask_keeps_flash_away() -> None:
    assert kernel(mask=True) is Kernel.EFFICIENT
    assert kernel(mask=True, architecture="sm90") is Kernel.CUDNN


@pytest.mark.parametrize(("dropout", "expected"), [(0.1, Kernel.FLASH), (0.125, Kernel.CUDNN), (0.0, Kernel.CUDNN)])
def test_cudnn_takes_dropout_in_sixteenths(dropout: float, expected: Kernel) -> None:
    assert kernel(architecture="sm90", dropout=dropout) is expected


@pytest.mark.parametrize(
    ("head", "changes", "expected"),
    [
        (100, {}, Kernel.FLASH),  # padded
        (256, {}, Kernel.FLASH),
        (264, {}, Kernel.EFFICIENT),
        (260, {}, Kernel.MATH),
        (200, {"architecture": "sm89"}, Kernel.EFFICIENT),
        (192, {"architecture": "sm89"}, Kernel.FLASH),
        (256, {"architecture": "sm89"}, Kernel.FLASH),
        (256, {"architecture": "sm90"}, Kernel.CUDNN),
        (256, {"architecture": "sm90", "torch": "2.13.0"}, Kernel.FLASH),
        (192, {"architecture": "sm90"}, Kernel.FLASH),
        (100, {"architecture": "sm90"}, Kernel.FLASH),
        (66, {"dtype": FP32}, Kernel.MATH),
        (66, {"dtype": FP32, "architecture": "sm75"}, Kernel.EFFICIENT),
    ],
)
def test_head_dims(head: int, changes: dict[str, object], expected: Kernel) -> None:
    assert kernel(head=head, **changes) is expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, Choice(Kernel.FLASH, False, False)),
        ({"architecture": "sm90"}, Choice(Kernel.CUDNN, False, False)),
        ({"mask": True}, Choice(Kernel.EFFICIENT, True, True)),
        ({"transformers": "4.47.1"}, Choice(Kernel.FLASH, True, True)),
        ({"transformers": "4.48.0"}, Choice(Kernel.FLASH, True, True, dense=True)),
        ({"transformers": "4.55.4"}, Choice(Kernel.FLASH, False, False, dense=True)),
        ({"torch": "2.4.1"}, Choice(Kernel.FLASH, True, True)),
        ({"dtype": FP32}, Choice(Kernel.EFFICIENT, False, True)),
        ({"dtype": FP32, "torch": "2.13.0"}, Choice(Kernel.MATH, False, True)),
        ({"dtype": FP32, "torch": "2.13.0", "mask": True}, Choice(Kernel.EFFICIENT, True, True)),
        ({"dtype": FP16, "architecture": "sm75", "torch": "2.13.0"}, Choice(Kernel.MATH, False, True)),
        ({"head": 512}, Choice(Kernel.EFFICIENT, True, True)),
        ({"word": "flash"}, Choice(Kernel.PACKAGE, False, False)),
        ({"word": "eager"}, Choice(Kernel.EAGER, True, True)),
    ],
)
def test_grouped_heads(changes: dict[str, object], expected: Choice) -> None:
    assert choose(replace(BASE, grouped=True, **changes)) == expected  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (None, Kernel.FLASH),
        ("flash", Kernel.PACKAGE),
        ("mem-efficient", Kernel.EFFICIENT),
        ("flex", Kernel.FLEX),
        ("eager", Kernel.EAGER),
        ("unfused", Kernel.EAGER),
        ("fused", Kernel.CUDNN),
        ("math", Kernel.MATH),
    ],
)
def test_words(word: str | None, expected: Kernel) -> None:
    assert kernel(word=word) is expected


def test_every_word_of_a_plan_has_a_row() -> None:
    assert set(Attention.__args__) <= set(WORDS)  # type: ignore[attr-defined]


def test_only_pytorchs_own_call_is_given_masks_of_windows() -> None:
    assert [word for word in WORDS if given_masks(word)] == [
        "mem-efficient",
        "math",
        "flash-first",
        "cudnn-first",
        "sdpa",
    ]


def test_levels() -> None:
    assert [level(name) for name in ("sm75", "sm103", "gfx942", "")] == [75, 103, 80, 80]


def test_padding_is_told() -> None:
    assert choose(replace(BASE, head=100)).padded
    assert not choose(replace(BASE, head=104)).padded


def test_torchtitans_order_of_kernels_is_not_pytorchs() -> None:
    """Flash before cuDNN where PyTorch would try cuDNN's first, and the other way round."""
    for word, architecture, expected in (("flash-first", "sm90", Kernel.FLASH), ("cudnn-first", "sm100", Kernel.CUDNN)):
        assert choose(Asked(word, BF16, 128, torch="2.8", architecture=architecture)).kernel is expected
    assert choose(Asked("flash-first", BF16, 128, torch="2.11", architecture="sm90")).kernel is Kernel.FLASH
    assert choose(Asked("sdpa", BF16, 128, torch="2.11", architecture="sm90")).kernel is Kernel.CUDNN


def test_a_mask_costs_the_flash_kernel_and_grouped_heads() -> None:
    asked = replace(BASE, grouped=True)
    assert choose(asked) == Choice(Kernel.FLASH, False, False)
    assert choose(replace(asked, mask=True)) == Choice(Kernel.EFFICIENT, True, True)
    assert choose(replace(asked, mask=True, architecture="sm90")).kernel is Kernel.CUDNN
