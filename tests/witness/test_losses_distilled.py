"""The divergence of distillation in plain PyTorch: its largest instants against the written loss's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch.nn import functional

from tests.witness.storages import Storages, Watching
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import FP32
from trainledger.ledger.engine import Backward
from trainledger.ledger.losses_distilled import distilled
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward

BATCH, TOKENS, WORDS = 2, 9, 2048


def divergence(student: Any, teacher: Any, labels: Any) -> Any:
    student, teacher = student / 1.0, teacher / 1.0
    ours, theirs = functional.log_softmax(student, -1), functional.log_softmax(teacher, -1)
    beta = torch.tensor(0.5)
    mixed = torch.logsumexp(torch.stack([ours + torch.log1p(-beta), theirs + torch.log(beta)]), dim=0)
    of_teacher = functional.kl_div(mixed, theirs, reduction="none", log_target=True)
    of_student = functional.kl_div(mixed, ours, reduction="none", log_target=True)
    found = beta * of_teacher + (1 - beta) * of_student
    return found[labels != -100].sum()


def witnessed(counted: int) -> tuple[int, int]:
    """Bytes at most in forward and in backward; the student's own logits lie outside."""
    storages = Storages()
    labels = torch.full((BATCH, TOKENS - 1), -100)
    labels[:, TOKENS - 1 - counted :] = 1
    whole = torch.randn(BATCH, TOKENS, WORDS, requires_grad=True)
    with Watching(storages):
        storages.see(whole, counted=False)
        teacher = torch.randn(BATCH, TOKENS, WORDS)
        loss = divergence(whole[:, :-1], teacher[:, :-1], labels)
        ahead, start = storages.highest(0), len(storages.events)
        del teacher
        loss.backward()
    return ahead, storages.highest(start)


def written(counted: int) -> tuple[int, int]:
    tape = Tape(None)
    dims = (Axis(Dim.BATCH, BATCH), Axis(Dim.SEQUENCE, TOKENS), Axis(Dim.VOCAB, WORDS))
    names = {"logits": tape.outside(dims, FP32, True)}
    frame: Any = SimpleNamespace(tape=tape, names=names)
    loss = distilled(frame, counted)
    forward = run_forward(tape, frozenset({loss}), True)
    back = Backward(tape, dict(forward.held), frozenset({tape.store[loss]}))
    back.seed(loss, "gradient of the loss")
    back.run(0, len(tape.prims))
    level = high = 0
    highs = []
    for events in (forward.events, back.events):
        high = level
        for event in events:
            level += tape.storages[abs(event) - 1].size * (1 if event > 0 else -1)
            high = max(high, level)
        highs.append(high)
    return highs[0], highs[1]


@pytest.mark.parametrize("counted", [TOKENS - 1, 3])
def test_the_largest_instants(counted: int) -> None:
    ours, theirs = written(counted), witnessed(counted)
    whole = BATCH * (TOKENS - 1) * WORDS * 4
    for mine, other in zip(ours, theirs, strict=True):
        assert abs(mine - other) < whole / 20, (mine / whole, other / whole)
