"""A module recomputed on its own, storage by storage against a real layer whose module runs under a checkpoint.

A recomputed norm is left out, since it does not agree: under a checkpoint saved tensors die before the gradient
of the norm's weight is summed, which the walk does one moment later (one hidden state, inside the norm's backward).
"""

from __future__ import annotations

import functools

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.witness.compare import Case, Event, labelled, matched, section
from tests.witness.tracer import trace
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import DTYPES
from trainledger.ledger.engine import Backward
from trainledger.ledger.regions import regions_of, run_back
from trainledger.ledger.rules import Frame, lower
from trainledger.ledger.tape import Tape
from trainledger.ledger.walk import run_forward
from trainledger.model.build import build

CONFIG = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 160, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300,
}  # fmt: skip


def ours(case: Case, modules: tuple[str, ...]) -> dict[str, list[Event]]:
    """The layer's events with these modules recomputed."""
    model = build(_keys())
    tape = Tape(case.setting.autocast)
    sequence, one = Axis(Dim.SEQUENCE, case.sequence), Axis(Dim.ONE, 1)
    dtype = DTYPES[case.weights]
    hidden = tape.inherit((Axis(Dim.BATCH, case.batch), sequence, model.hidden), dtype, True, "h")
    assert model.rotary
    table = (one, sequence, one, Axis(Dim.ROPE_DIM, model.rotary.dim))
    names = {"h": hidden, "cos": tape.outside(table, dtype, False), "sin": tape.outside(table, dtype, False)}
    frame = Frame(tape, case.setting, names, lambda weight: True, {})
    lower(frame, model.blocks[0].ops)
    tape.end([hidden, *(value for name, value in names.items() if name != "h")])
    regions = regions_of(tape, frame.marks, modules)
    assert len(regions) == len(modules)
    forward = run_forward(tape, frozenset({names["h"]}), True, None, regions)
    back = Backward(tape, dict(forward.held), frozenset())
    back.seed(names["h"], "gradient of h")
    run_back(back, regions)
    return {"forward": labelled(tape, forward.events), "backward": labelled(tape, back.events)}


def _keys() -> dict[str, object]:
    return dict(CONFIG)


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
    found = trace(dict(CONFIG), batch=batch, sequence=case.sequence)
    for phase, mine in ours(case, modules).items():
        rows = matched(mine, section(found, phase, f"{case.prefix}{case.layer}"))
        assert not [row for row in rows if not row[0]], (phase, [row for row in rows if not row[0]][:4])
