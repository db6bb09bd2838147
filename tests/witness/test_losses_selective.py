"""Log-probabilities of tokens row by row in plain PyTorch: their largest instants against the written rule's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

from tests.witness.storages import Storages, Watching
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, DType
from trainledger.ledger import aten
from trainledger.ledger.engine import Backward
from trainledger.ledger.losses_selective import by_kernel, by_rows
from trainledger.ledger.tape import Prim, Tape
from trainledger.ledger.walk import run_forward

BATCH, TOKENS, WORDS = 4, 9, 2048


def scored(logits: Any, index: Any) -> Any:
    picked = []
    if logits.dtype == torch.float32:
        chosen = torch.gather(logits, -1, index)
        sums = torch.stack([torch.logsumexp(row, dim=-1) for row in logits])
        return (chosen - sums.unsqueeze(-1)).squeeze(-1)
    for row, places in zip(logits, index, strict=True):
        logs = torch.nn.functional.log_softmax(row, dim=-1)
        picked.append(logs.gather(-1, places))
    return torch.stack(picked).squeeze(-1)


def witnessed(dtype: Any) -> tuple[int, int]:
    """Bytes at most in forward, and in backward; the logits lie outside."""
    storages = Storages()
    whole = torch.randn(BATCH, TOKENS, WORDS, dtype=dtype, requires_grad=True)
    index = torch.randint(WORDS, (BATCH, TOKENS - 1, 1))
    with Watching(storages):
        storages.see(whole, counted=False)
        storages.see(index, counted=False)
        loss = scored(whole[..., :-1, :], index).sum()
        ahead, start = storages.highest(0), len(storages.events)
        loss.backward()
    return ahead, storages.highest(start)


def written(dtype: DType, rule: Callable[[Tape, int], int] = by_rows) -> tuple[int, int]:
    tape = Tape(None)
    batch, words = Axis(Dim.BATCH, BATCH), Axis(Dim.VOCAB, WORDS)
    whole = tape.outside((batch, Axis(Dim.SEQUENCE, TOKENS), words), dtype, True)
    cut = aten.part(tape, whole, (batch, Axis(Dim.SEQUENCE, TOKENS - 1), words))
    picked = rule(tape, cut)
    loss = tape.fresh((Axis(Dim.ONE, 1),), FP32, True, "loss")
    tape.run(Prim("sum", (picked,), (loss,), (), aten.GRAD0, ()))
    tape.end([cut, picked])
    forward = run_forward(tape, frozenset({loss}), True)
    back = Backward(tape, dict(forward.held), frozenset({tape.store[loss]}))
    back.seed(loss, "gradient of the loss")
    back.run(0, len(tape.prims))
    level, highs = 0, []
    for events in (forward.events, back.events):
        high = level
        for event in events:
            level += tape.storages[abs(event) - 1].size * (1 if event > 0 else -1)
            high = max(high, level)
        highs.append(high)
    return highs[0], highs[1]


@pytest.mark.parametrize(("ours", "theirs"), [(FP32, torch.float32), (BF16, torch.bfloat16)], ids=["fp32", "bf16"])
def test_the_largest_instants(ours: DType, theirs: Any) -> None:
    row = (TOKENS - 1) * WORDS * ours.bits // 8
    for mine, other in zip(written(ours), witnessed(theirs), strict=True):
        assert abs(mine - other) <= row, (mine / row, other / row)


def test_the_kernel_saves_the_logits_alone() -> None:
    whole = BATCH * TOKENS * WORDS * 4
    ahead, behind = written(FP32, by_kernel)
    assert ahead < whole / 50
    assert behind == pytest.approx(2 * whole, rel=0.1)  # of what is cut, and of the whole
