"""Baselines of losses' benchmarks in plain PyTorch: their largest instant against the written operator's.

The operations and the names that hold their results are those of Liger's benchmarks; partial sums inside kernels and
workspaces a dispatch mode cannot see.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from tests.witness.storages import Build, largest
from trainledger.facts.kernels import CUBLAS
from trainledger.ledger.operators import OperatorRun, operator_peak

TOKENS, WIDTH, VOCAB = 32, 64, 4096


def log_pair() -> tuple[Any, Any]:
    x = torch.randn(TOKENS, VOCAB, requires_grad=True).log_softmax(dim=-1)
    return x, torch.randn(TOKENS, VOCAB).log_softmax(dim=-1)


def kl_div() -> Callable[[], Any]:
    x = torch.randn(TOKENS, VOCAB, requires_grad=True).log_softmax(dim=-1)
    target = torch.randn(TOKENS, VOCAB).softmax(dim=-1)
    return lambda: functional.kl_div(x, target, reduction="batchmean")


def total_variation() -> Callable[[], Any]:
    x = torch.randn(TOKENS, VOCAB, requires_grad=True).softmax(dim=-1)
    target = torch.randn(TOKENS, VOCAB).softmax(dim=-1)

    def forward() -> Any:
        distance = torch.abs(x - target) / 2
        return torch.sum(distance) / x.size(0)

    return forward


def old_divergence() -> Callable[[], Any]:
    x, target = log_pair()

    def forward() -> Any:
        mixture = 0.5 * (torch.exp(x) + torch.exp(target))
        log = torch.log(mixture)
        both = (functional.kl_div(log, one, reduction="batchmean", log_target=True) for one in (x, target))
        return 0.5 * (next(both) + next(both))

    return forward


def new_divergence() -> Callable[[], Any]:
    x, target = log_pair()

    def forward() -> Any:
        mixture = torch.lerp(torch.exp(x), torch.exp(target), 0.5)
        loss = 0.5 * functional.kl_div(torch.log(mixture), target, reduction="none", log_target=True).sum(dim=-1) + (
            0.5 * functional.kl_div(torch.log(mixture), x, reduction="none", log_target=True).sum(dim=-1)
        )
        return (loss / x.shape[0]).sum()

    return forward


def heads_apart() -> Callable[[], Any]:
    student, teacher = (torch.nn.Linear(WIDTH, VOCAB, bias=False, dtype=torch.bfloat16) for _ in range(2))
    x = torch.rand(TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    y = torch.rand(TOKENS, WIDTH, dtype=torch.bfloat16)

    def divergence(q: Any, p: Any) -> Any:
        p, q = p.float(), q.float()
        mixture = torch.lerp(torch.exp(p), torch.exp(q), 0.5)
        loss = 0.5 * functional.kl_div(
            torch.log(mixture), p, reduction="batchmean", log_target=True
        ) + 0.5 * functional.kl_div(torch.log(mixture), q, reduction="batchmean", log_target=True)
        return loss.to(torch.bfloat16)

    def forward() -> Any:
        one, other = student(x), teacher(y)
        q, p = torch.log_softmax(one / 1.0, dim=-1), torch.log_softmax(other / 1.0, dim=-1)
        return divergence(q, p)

    return forward


@pytest.mark.parametrize(
    ("operator", "release", "build"),
    [
        ("kl_div", "0.2.1", kl_div),
        ("tvd", "0.7.0", total_variation),
        ("jsd", "0.3.1", old_divergence),
        ("jsd", "0.4.0", new_divergence),
    ],
)
def test_losses_between_distributions(operator: str, release: str, build: Build) -> None:
    run = OperatorRun(operator, "torch", {"B": 1, "T": TOKENS, "V": VOCAB}, None, release=release)
    assert operator_peak(run) == largest(build, True)


def test_heads_with_their_divergence() -> None:
    run = OperatorRun("fused_linear_jsd", "torch", {"BT": TOKENS, "H": WIDTH, "V": VOCAB}, "bf16", release="0.3.1")
    peak = operator_peak(run)
    assert peak is not None
    assert peak - 2 * CUBLAS.default == largest(heads_apart, False)


BATCH, LENGTH = 4, 16


def preference(odds: bool) -> Build:
    """Cross-entropy of the chosen half less the mean of ORPO's or CPO's term."""

    def build() -> Callable[[], Any]:
        head = torch.nn.Linear(WIDTH, VOCAB, bias=False, dtype=torch.bfloat16)
        x = torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.bfloat16, requires_grad=True)
        target = torch.randint(VOCAB, (BATCH, LENGTH))
        half = BATCH // 2

        def means(logits: Any) -> Any:
            mask = target != -100
            labels = torch.where(target == -100, 0, target)
            picked = torch.gather(logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
            return (picked * mask).sum(-1) / mask.sum(-1)

        def parts() -> tuple[Any, ...]:
            out = x @ head.weight.t()
            wide = out.float()
            likelihood = functional.cross_entropy(wide[:half].view(-1, VOCAB), target[:half].view(-1))
            mean = means(wide)
            return mean[:half], mean[half:], wide, likelihood

        def forward() -> Any:
            chosen, rejected, wide, likelihood = parts()
            ratio = chosen - rejected
            if odds:
                ratio = ratio - (torch.log1p(-torch.exp(chosen)) - torch.log1p(-torch.exp(rejected)))
            losses = functional.logsigmoid(0.1 * ratio)
            del wide
            return (likelihood if odds else likelihood * 1.0) - losses.mean()

        return forward

    return build


@pytest.mark.parametrize(("operator", "odds"), [("fused_linear_orpo_loss", True), ("fused_linear_cpo_loss", False)])
def test_preference_losses(operator: str, odds: bool) -> None:
    shape = {"B": BATCH, "T": LENGTH, "H": WIDTH, "V": VOCAB}
    peak = operator_peak(OperatorRun(operator, "huggingface", shape, "bf16", release="0.4.1"))
    assert peak is not None
    weight, sequence = 2 * VOCAB * WIDTH, 2 * LENGTH * WIDTH
    left = 2 * weight + (4 + 4 + 2) * sequence + 512 + 512 + 512  # what compiled calls left: weights, inputs, numbers
    assert peak - weight - left - 2 * CUBLAS.default == largest(preference(odds), False)


class VocabParallel(torch.autograd.Function):
    """Megatron's unfused cross-entropy on one rank."""

    @staticmethod
    def forward(ctx: Any, logits: Any, target: Any) -> Any:
        wide = logits.float()
        top = torch.max(wide, dim=-1)[0]
        wide -= top.unsqueeze(dim=-1)
        mask = (target < 0) | (target >= VOCAB)
        places = (target.clone() - 0).view(-1)
        picked = wide.view(-1, VOCAB)[torch.arange(places.numel()), places].clone().view_as(target)
        torch.exp(wide, out=wide)
        sums = wide.sum(dim=-1)
        loss = torch.log(sums) - picked
        wide.div_(sums.unsqueeze(dim=-1))
        ctx.save_for_backward(wide, mask, places)
        return loss

    @staticmethod
    def backward(ctx: Any, *incoming: Any) -> Any:
        softmax, mask, places = ctx.saved_tensors
        rows = softmax.view(-1, VOCAB)
        update = 1.0 - mask.view(-1).float()
        rows[torch.arange(rows.size(0)), places] -= update
        softmax.mul_(incoming[0].unsqueeze(dim=-1))
        return softmax, None


def vocab_parallel() -> Callable[[], Any]:
    logits = torch.randn(TOKENS, 1, VOCAB, dtype=torch.bfloat16, requires_grad=True)
    target = torch.randint(0, VOCAB, (TOKENS, 1))

    def forward() -> Any:
        logits.grad = None
        losses.clear()
        losses.append(VocabParallel.apply(logits, target))
        return losses[0].sum()

    losses: list[Any] = []
    return forward


def test_vocab_parallel_cross_entropy() -> None:
    shape = {"S": TOKENS, "B": 1, "V": VOCAB, "TP": 1}
    peak = operator_peak(OperatorRun("megatron_cross_entropy", "megatron-unfused", shape, None, release="0.8.0"))
    assert peak == largest(vocab_parallel, False)
