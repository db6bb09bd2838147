"""Losses: what each form makes, by release and kernel set, and that a run's lines all end."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16
from trainledger.importers.document import Document
from trainledger.importers.plan_file import draft_of
from trainledger.ledger.fused_head import Shape, chunk_of
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.model.build import build

TOKENS, VOCAB, HIDDEN = 2 * 1024, 32000, 256


def ledger(**stack: Any) -> Ledger:
    """A small Llama's ledger under these keys of `stack`; `model_type` and `optimizer` may be given beside them."""
    model = {
        "model_type": stack.pop("model_type", "llama"), "hidden_size": HIDDEN, "intermediate_size": 512,
        "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": VOCAB,
    }  # fmt: skip
    if model["model_type"] in ("gpt2", "gpt_bigcode"):
        model = {"model_type": model["model_type"], "n_embd": HIDDEN, "n_layer": 2, "n_head": 4, "vocab_size": VOCAB}
    plan = {
        "model": model,
        "precision": {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16"},
        "optimizer": {"name": "adamw", "implementation": "foreach"},
        "batch": {"micro_batch": 2, "sequence": 1024, "accumulation": 1},
        "stack": {"framework": "transformers", "attention": "sdpa", **stack},
        "device": "h100-80gb",
    }
    resolved = draft_of(Document(plan, {(): "test"})).plan
    return rank_ledger(resolved, build(resolved.keys()), "sm90")


def peak(of: Ledger, moment: str) -> int:
    """The second step's highest moment of that name."""
    return max(one.allocated for one in of.moments if one.name.startswith(f"step 2: {moment}"))


def loss(**stack: Any) -> int:
    """Bytes of the loss's moment above the model's own states and activations."""
    made = ledger(**stack)
    return peak(made, "loss")


FULL = loss(loss="full-fp32", versions={"transformers": "5.24.0"})


def test_newer_releases_shift_labels() -> None:
    newest, shifting = loss(loss="full-fp32"), loss(loss="full-fp32", versions={"transformers": "4.48.1"})
    assert newest == FULL
    assert shifting - newest == pytest.approx(4 * TOKENS * VOCAB, rel=0.01)


def test_early_releases_return_logits_in_fp32() -> None:
    late, early = (loss(loss="full-fp32", versions={"transformers": v}) for v in ("4.48.1", "4.45.2"))
    assert late - early == pytest.approx(2 * TOKENS * VOCAB, rel=0.02)


def test_families_that_did_not_cast() -> None:
    old, new = (ledger(loss="full-fp32", versions={"transformers": v}, model_type="gpt2") for v in ("4.48.1", "5.24.0"))
    assert peak(new, "backward of the loss") - peak(old, "backward of the loss") > 5 * TOKENS * VOCAB


def test_a_fused_loss_reads_what_its_family_hands_it() -> None:
    made = {
        kernels: ledger(
            loss="full-fp32", versions={"transformers": "4.48.1"}, model_type="gpt_bigcode", kernels=kernels
        )
        for kernels in ((), ("foak",))
    }
    plain, fused = (peak(one, "backward of the loss") for one in made.values())
    # gradients are written over the logits' copy; their shift makes one more tensor
    assert plain - fused == pytest.approx(2 * TOKENS * VOCAB, rel=0.02)


def test_without_a_cast_the_loss_stays_in_sixteen_bits() -> None:
    assert FULL - loss(loss="full") == pytest.approx(6 * TOKENS * VOCAB, rel=0.02)


def test_kept_outputs_stay_through_backward() -> None:
    kept = ledger(loss="full-fp32", options={"keep_outputs": True})
    freed = ledger(loss="full-fp32")
    assert peak(kept, "backward of the loss") - peak(freed, "backward of the loss") >= 2 * TOKENS * VOCAB


@pytest.mark.parametrize(
    ("keys", "most"),
    [
        ({"loss": "chunked"}, 2 * TOKENS * 32768),
        ({"loss": "fused-linear", "versions": {"trl": "1.16.0"}}, 2 * TOKENS * 32768),
        ({"loss": "fused-linear", "kernels": ["liger"]}, TOKENS * VOCAB),
    ],
)
def test_a_fused_head_makes_no_logits_of_all_tokens(keys: dict[str, Any], most: int) -> None:
    whole, fused = ledger(loss="full-fp32"), ledger(**keys)
    assert not any("lm_head: output" in line.name for line in fused.lines)
    assert any("lm_head: output" in line.name for line in whole.lines)
    head = 8 * HIDDEN * VOCAB
    for moment in ("loss", "backward of the loss"):
        assert peak(fused, moment) < peak(whole, moment) - 10 * TOKENS * VOCAB + most + head + 8 * HIDDEN * TOKENS


def test_chunks_of_tokens() -> None:
    shape = Shape(8192, Axis(Dim.HIDDEN, 4096), Axis(Dim.VOCAB, 128256), BF16)
    assert chunk_of(shape) == 256
    assert chunk_of(shape._replace(tokens=16384)) == 512
    assert chunk_of(shape._replace(tokens=1)) == 1


@pytest.mark.parametrize("kernels", [[], ["liger"], ["foak"], ["foak", "liger"]])
@pytest.mark.parametrize("name", ["full-fp32", "full", "fused-linear", "chunked"])
def test_what_a_step_makes_ends_with_it(name: str, kernels: list[str]) -> None:
    made = ledger(loss=name, kernels=kernels)
    for moment in made.moments:
        for line, copies in moment.live:
            assert copies > 0, (moment.name, made.lines[line].name)
