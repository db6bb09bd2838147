"""A module recomputed on its own, storage by storage against a real layer whose module runs under a checkpoint.

A recomputed norm is left out, since it does not agree: under a checkpoint saved tensors die before the gradient
of the norm's weight is summed, which the walk does one moment later (one hidden state, inside the norm's backward).
"""

from __future__ import annotations

import functools
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.witness.compare import Event, labelled, lower_layer, matched, opened, section
from tests.witness.runs import Case, traced
from trainledger.ledger.dropped import run_back
from trainledger.ledger.engine import Backward
from trainledger.ledger.regions import regions_of
from trainledger.ledger.walk import run_forward
from trainledger.model.build import build

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
}  # fmt: skip


def ours(case: Case, modules: tuple[str, ...]) -> dict[str, list[Event]]:
    """The layer's events with these modules recomputed."""
    model = build(case.plan(CONFIG).keys())
    ops = model.blocks[0].ops
    frame = opened(model, ops, CONFIG, case)
    tape = frame.tape
    lower_layer(frame, ops)
    regions = regions_of(tape, frame.marks, modules)
    assert len(regions) == len(modules)
    forward = run_forward(tape, frozenset({frame.names["h"]}), True, None, regions)
    back = Backward(tape, dict(forward.held), frozenset())
    back.seed(frame.names["h"], "gradient of h")
    run_back(back, regions)
    return {"forward": labelled(tape, forward.events), "backward": labelled(tape, back.events)}


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("modules", [("mlp",), ("mlp.act_fn",), ("self_attn.o_proj", "mlp.down_proj")])
def test_a_module_under_a_checkpoint_agrees(
    modules: tuple[str, ...], batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.llama.modeling_llama import LlamaDecoderLayer

    made = LlamaDecoderLayer.__init__

    def wrapped(self: nn.Module, *args: object, **kwargs: object) -> None:
        made(self, *args, **kwargs)
        for name in modules:
            module = self.get_submodule(name)
            module.forward = functools.partial(checkpoint, module.forward, use_reentrant=False)

    monkeypatch.setattr(LlamaDecoderLayer, "__init__", wrapped)
    case = Case(batch=batch)
    plan = case.plan(CONFIG)
    record = traced(plan, case.where(plan), case.steps)
    for phase, mine in ours(case, modules).items():
        rows = matched(mine, section(record, phase, case))
        assert not [row for row in rows if not row[0]], (phase, [row for row in rows if not row[0]][:4])
