"""The baseline of Liger's distillation benchmark in plain PyTorch: its largest instant against the written one's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from tests.witness.storages import largest
from trainledger.facts.kernels import CUBLAS
from trainledger.ledger.operators import OperatorRun, operator_peak

TOKENS, WIDTH, VOCAB = 64, 64, 4096


def divergence(student: Any, teacher: Any) -> Any:
    """Of temperature 1, from the mean of both softmaxes."""
    student, teacher = student / 1.0, teacher / 1.0
    shares, seen = student.softmax(-1), teacher.softmax(-1)
    log = torch.log((shares + seen) / 2)
    one = functional.kl_div(log, torch.log(shares), reduction="batchmean", log_target=True)
    other = functional.kl_div(log, torch.log(seen), reduction="batchmean", log_target=True)
    return (one + other) / 2


def distillation() -> Callable[[], Any]:
    student, teacher = (
        torch.nn.Linear(width, VOCAB, bias=False, dtype=torch.bfloat16) for width in (WIDTH // 2, WIDTH)
    )
    x = torch.rand(TOKENS, WIDTH // 2, dtype=torch.bfloat16, requires_grad=True)
    y = torch.rand(TOKENS, WIDTH, dtype=torch.bfloat16)
    target = torch.randint(VOCAB, (TOKENS,))

    def logits() -> tuple[Any, Any, Any]:
        low, seen = x @ student.weight.t(), y @ teacher.weight.t()
        wide, reference = low.float(), seen.float()
        return wide, reference, functional.cross_entropy(wide, target)

    def forward() -> Any:
        wide, reference, hard = logits()
        soft = divergence(wide, reference)
        return 0.5 * hard + 0.5 * soft.mean()

    return forward


def test_distillation() -> None:
    shape = {"BT": TOKENS, "H": WIDTH, "V": VOCAB, "bias": False}
    peak = operator_peak(OperatorRun("distill_jsd_loss", "torch", shape, "bf16", release="0.4.2"))
    assert peak is not None
    weight, states = 2 * VOCAB * WIDTH // 2, 2 * TOKENS * WIDTH // 2
    # what two compiled calls left: weights, the gradient of one, both hidden states, a gradient, targets, a number
    left = sum(4 * weight + tokens * (2 * WIDTH + 2 * WIDTH + 8) + 512 for tokens in (1024, 2048))
    assert peak - 3 * weight - 2 * states - left - 2 * CUBLAS.default == largest(distillation, False)
