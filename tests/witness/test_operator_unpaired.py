"""The baseline of Liger's KTO benchmark in plain PyTorch: its largest instant against the written operator's."""

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

BATCH, LENGTH, WIDTH, VOCAB = 4, 16, 64, 4096
NUMBERS = 16 * 512  # means apart by their labels, places of labels, and the like, which are not counted


def means(logits: Any, target: Any) -> Any:
    mask = target != 42
    labels = torch.where(target == 42, 0, target)
    picked = torch.gather(logits.log_softmax(-1), dim=2, index=labels.unsqueeze(2)).squeeze(2)
    return (picked * mask).sum(-1) / mask.sum(-1)


def unpaired(bias: bool, chosen: int) -> Build:
    """`chosen`: how many sequences are labelled good."""

    def build() -> Callable[[], Any]:
        head, reference = (torch.nn.Linear(WIDTH, VOCAB, bias=bias, dtype=torch.bfloat16) for _ in range(2))
        x, y = (torch.randn(BATCH, LENGTH, WIDTH, dtype=torch.bfloat16) for _ in range(2))
        target, good = torch.randint(VOCAB, (BATCH, LENGTH)), torch.arange(BATCH) < chosen

        def logits(states: Any, module: Any) -> Any:
            out = states @ module.weight.t()
            return out if module.bias is None else out + module.bias

        def policy() -> tuple[Any, ...]:
            out = logits(x, head)
            wide = out.float()
            mean = means(wide, target)
            return mean[good], mean[~good], wide[good], wide[~good]

        def forward() -> Any:
            own = policy()
            with torch.no_grad():
                expected = means(logits(y, reference), target)
            ratios = own[0] - expected[good], expected[~good] - own[1]
            return torch.cat([1 - functional.sigmoid(0.1 * ratio) for ratio in ratios]).mean()

        return forward

    return build


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("chosen", [0, 1, 2, BATCH])
def test_unpaired_preferences(bias: bool, chosen: int) -> None:
    shape = {"B": BATCH, "T": LENGTH, "H": WIDTH, "V": VOCAB, "bias": bias}
    peak = operator_peak(OperatorRun("kto_loss", "huggingface", shape, "bf16", release="0.5.4"))
    assert peak is not None
    weight, vector = 2 * VOCAB * WIDTH, 2 * VOCAB * bias

    def drawn(sequences: int) -> int:
        return 2 * sequences * 2 * LENGTH * WIDTH + max(512, 8 * sequences * LENGTH) + 2 * 512

    left = drawn(4) + 2 * weight + vector + (drawn(2) + 3 * (weight + vector) if bias else 0)
    ours = peak - 2 * (weight + vector) - left - 2 * CUBLAS.default
    assert 0 <= largest(unpaired(bias, chosen), False) - ours <= NUMBERS
