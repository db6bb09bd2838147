"""What a reader is told of adapters: recompute without effect, modules that stay twice, and what is saved."""

from __future__ import annotations

from typing import Any

from tests.plans import LLAMA, plan_of
from trainledger.answer.disk import elsewhere
from trainledger.answer.estimate import Estimate, estimate
from trainledger.lines.line import Account

REENTRANT = {"kind": "full", "reentrant": True}
LORA = {"kind": "lora", "r": 8, "targets": "all-linear", "dtype": "fp32"}


def answer(recompute: Any, transformers: str = "4.48.1", **sections: Any) -> Estimate:
    versions = {"torch": "2.4.1", "transformers": transformers, "peft": "0.13.2"}
    return estimate(plan_of(LLAMA, stack={"recompute": recompute, "versions": versions}, **sections))


def warned(found: Estimate, word: str) -> bool:
    return any(word in warning for warning in found.notes.warnings)


def test_reentrant_recompute_over_a_frozen_embedding_trains_nothing() -> None:
    """PEFT asks the embedding for a gradient, newer Transformers do, and a trained embedding needs no asking."""
    word = "enable_input_require_grads"
    assert warned(answer(REENTRANT, trainable=["lm_head", "self_attn"]), word)
    assert not warned(answer(REENTRANT, "5.24.0", trainable=["lm_head", "self_attn"]), word)
    assert not warned(answer(REENTRANT, adapter=LORA), word)
    assert not warned(answer(REENTRANT), word)
    assert not warned(answer({"kind": "full", "reentrant": False}, trainable=["lm_head"]), word)


def test_frozen_layers_under_a_recompute_that_asks_for_gradients_run_backward() -> None:
    word, full = "keep their inputs and run backward", {"kind": "full", "reentrant": False}
    assert warned(answer(full, "5.24.0", trainable=["layers.2"]), word)
    assert not warned(answer(full, "4.56.0", trainable=["layers.2"]), word)
    assert not warned(answer(full, "5.24.0", trainable=["layers.2", "embed_tokens"]), word)
    assert not warned(answer(full, "5.24.0", trainable=["layers.0"]), word)
    assert not warned(answer("none", "5.24.0", trainable=["layers.2"]), word)
    older, newer = (answer(full, release, trainable=["layers.2"]).peak.allocated for release in ("4.56.0", "5.24.0"))
    assert older.expected < newer.expected


def test_layers_that_no_gradient_reaches_have_none_and_no_states() -> None:
    found = answer(REENTRANT, trainable=["lm_head", "self_attn"])
    lines = [line for line in found.ledger.lines if line.account in (Account.GRADIENTS, Account.OPTIMIZER)]
    assert lines
    assert not [line.name for line in lines if "self_attn" in line.name]


def test_int8_layers_are_not_dropped_without_reentrance() -> None:
    sections: dict[str, Any] = {"adapter": LORA, "quantization": {"kind": "int8"}}
    assert warned(answer({"kind": "full", "reentrant": False}, **sections), "LLM.int8()")
    assert not warned(answer(REENTRANT, **sections), "LLM.int8()")


def test_a_module_trained_whole_stays_twice() -> None:
    assert warned(answer("none", adapter={**LORA, "train_extra": ["lm_head"]}), "lm_head stays, frozen")


def test_of_an_adapters_run_only_what_it_trains_is_saved() -> None:
    found = answer("none", adapter=LORA)
    saved = elsewhere(found)
    assert saved.weights_only == 4 * found.parameters.trainable
    assert saved.checkpoint == 12 * found.parameters.trainable
