"""MLPs in tiles: the formula's phases against a trace of code that runs them so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.evidence.trace.families import FAMILIES, PRECISIONS
from tests.plans import plan_of
from tests.witness.runs import VERSIONS, traced
from tests.witness.steps import phases
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.session import where_of

Mlp = Callable[[Any, Any], Any]
SEQUENCE = 3000  # three tiles, the last one shorter


def plain(module: Any, x: Any) -> Any:
    return module.down_proj(module.act_fn(module.gate_proj(x)) * module.up_proj(x))


def tiles() -> Any:
    """An MLP over one part of the sequence after the other, without a graph; backward makes one for each."""
    import torch

    class Tiles(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, mlp: Mlp, module: Any, x: Any, count: int) -> Any:
            ctx.mlp, ctx.module, ctx.count = mlp, module, count
            ctx.save_for_backward(x)
            with torch.no_grad():
                return torch.cat([mlp(module, part) for part in torch.chunk(x, count, dim=1)], dim=1)

        @staticmethod
        def backward(ctx: Any, slope: Any) -> Any:
            (x,) = ctx.saved_tensors
            whole = torch.zeros_like(x)
            parts = zip(*(torch.chunk(one, ctx.count, dim=1) for one in (x.detach(), whole, slope)), strict=True)
            for part, grad, arriving in parts:
                part.requires_grad_(True)
                part.grad = grad
                with torch.enable_grad():
                    out = ctx.mlp(ctx.module, part)
                torch.autograd.backward(out, arriving)
            return None, None, whole, None

    return Tiles


@pytest.fixture
def in_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.llama.modeling_llama import LlamaMLP

    def forward(self: Any, x: Any) -> Any:
        return tiles().apply(plain, self, x, -(-x.shape[1] // x.shape[2]))

    monkeypatch.setattr(LlamaMLP, "forward", forward)


@pytest.mark.parametrize("recompute", ["none", {"kind": "full", "reentrant": True}], ids=["kept", "recomputed"])
def test_tiles_agree(in_tiles: None, recompute: Any) -> None:
    """The largest instant of every phase, within 0.05 %."""
    plan = plan_of(
        FAMILIES["llama"],
        precision=PRECISIONS["pure"],
        batch={"micro_batch": 1, "sequence": SEQUENCE, "accumulation": 1},
        parallel={"strategy": "none", "options": {"tiled_mlp": True}},
        stack={
            "versions": VERSIONS, "recompute": recompute, "attention": "sdpa",
            "allocator": {"expandable_segments": True},
        },
    )  # fmt: skip
    record = traced(plan, where_of(job_of(plan)))
    found = phases(trace_of(record, conf=read_conf(plan.stack.allocator)).moments)
    ours = phases(estimate(plan).ledger.moments)
    assert {key: ours[key] / found[key] for key in found} == pytest.approx(dict.fromkeys(found, 1), rel=0.0005)
