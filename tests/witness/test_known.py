"""Traces against numbers known from the operations themselves: what they save, what an optimizer takes, the logits."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tests.witness.runs import Case, record_of
from trainledger.evidence.trace.record import Record

WIDE: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 512, "intermediate_size": 1792, "num_attention_heads": 4,
    "num_key_value_heads": 1, "vocab_size": 64,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 256,
}  # fmt: skip
RNG = 24  # bytes of flash attention's random state
SCALAR = 4
FORWARD = ("step 2: forward", "step 2: loss")


def saved(record: Record) -> int:
    """Bytes born in a forward and alive at its end, the batch's too."""
    total = 0
    for moment, events in record.stretches:
        if moment in FORWARD:
            total += sum(record.births[abs(event) - 1].size * (1 if event > 0 else -1) for event in events)
    return total


def per_layer(config: dict[str, Any], key: str, **more: Any) -> int:
    two, three = (saved(record_of({**config, key: layers}, Case(sequence=64, steps=2, **more))) for layers in (2, 3))
    return three - two


def test_llama_saves_what_its_operations_save() -> None:
    s, h, f, a, k = 64, 512, 1792, 4, 1
    norms, qkv, out, logsumexp = 16 * s * h + 8 * s, 2 * s * h + 4 * s * h * k // a, 2 * s * h, 4 * a * s
    assert per_layer(WIDE, "num_hidden_layers") == norms + qkv + out + logsumexp + 8 * s * f + RNG


def test_autocast_keeps_casts_of_weights() -> None:
    s, h, f, a, k = 64, 512, 1792, 4, 1
    weights = 2 * (2 * h * h + 2 * h * h * k // a + 3 * h * f)
    kept = per_layer(WIDE, "num_hidden_layers", weights="fp32", autocast="bf16")
    assert kept == 59 * s * h + 4 * a * s + 8 * s + RNG + weights


@pytest.mark.parametrize(("dropout", "a_unit"), [(0.0, 56), (0.1, 58)])
def test_gpt2_saves_bool_masks(dropout: float, a_unit: int) -> None:
    s, h, a = 64, 512, 8
    config = {
        "model_type": "gpt2", "n_embd": h, "n_head": a, "vocab_size": 256, "n_positions": 64, "resid_pdrop": dropout,
        "attn_pdrop": dropout, "embd_pdrop": dropout,
    }  # fmt: skip
    assert per_layer(config, "n_layer") == a_unit * s * h + 4 * a * s + 16 * s + RNG


def rise(record: Record, moment: str) -> int:
    """How far a moment rises above its start, in bytes asked for."""
    level = high = 0
    for name, events in record.stretches:
        for event in events if name == moment else ():
            level += record.births[abs(event) - 1].size * (1 if event > 0 else -1)
            high = max(high, level)
    return high


@pytest.mark.parametrize("kind", ["foreach", "loop", "fused"])
def test_optimizer_transients(kind: str) -> None:
    """foreach one copy of the parameters; the loop two of one and the last one's denominator; fused none."""
    record = record_of(LLAMA, Case(batch=2, steps=2, optimizer="adamw", implementation=kind))
    params = [one.size for one in record.births if one.account == "weights"]
    states = sum(one.size for one in record.births if one.account == "optimizer_states")
    largest = max(2 * size + before for before, size in zip([0, *params], params, strict=False))
    assert rise(record, "step 2: optimizer") == {"foreach": sum(params), "loop": largest, "fused": 0}[kind]
    assert states == 2 * sum(params) + (len(params) * SCALAR if kind == "fused" else 0)


def test_logits_reach_the_peak_three_times() -> None:
    logits = 32 * 2 * 8192
    record = record_of({**LLAMA, "vocab_size": 8192}, Case(batch=2, steps=2))
    live: dict[int, int] = {}
    peak: list[int] = []
    for moment, events in record.stretches:
        for event in events if moment in FORWARD else ():
            if event > 0:
                live[event] = record.births[event - 1].size
            else:
                live.pop(-event, None)
            peak = max(peak, list(live.values()), key=sum)
    assert sorted(size // logits for size in peak if size >= 2 * logits) == [2, 4, 4]
