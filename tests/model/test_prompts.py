"""Trained prompts and trained rows: how many elements, and what stands in front of the layers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.problems import InputError
from trainledger.model.build import model_of
from trainledger.model.counts import tuned
from trainledger.model.prompts import prefix_of, shared_weights, virtual_tokens

HIDDEN, VOCAB = 256, 1024


def plan(kind: str, options: dict[str, Any], **sections: Any) -> Any:
    keys = {**LLAMA, **sections.pop("model", {})}
    return plan_of(keys, adapter={"kind": kind, "dtype": "fp32", "options": options}, **sections)


@pytest.mark.parametrize(
    ("kind", "options", "count"),
    [
        ("prompt-tuning", {"num_virtual_tokens": 20}, 20 * HIDDEN),
        ("p-tuning", {"num_virtual_tokens": 20}, 20 * HIDDEN + 3 * (HIDDEN + 1) * HIDDEN),
        (
            "p-tuning",
            {"num_virtual_tokens": 4, "encoder_hidden_size": 64},
            4 * HIDDEN + (HIDDEN + 1) * 64 + 65 * 64 + 65 * HIDDEN,
        ),
        ("trainable-tokens", {"token_indices": [3, 5, 9]}, 3 * HIDDEN),
        ("prefix-tuning", {"num_virtual_tokens": 20}, 20 * 3 * 2 * 128),
        ("prefix-tuning", {"num_virtual_tokens": 20, "encoder_hidden_size": 64}, 20 * 3 * 2 * 128),
        (
            "prefix-tuning",
            {"num_virtual_tokens": 20, "prefix_projection": True, "encoder_hidden_size": 64},
            20 * 128 + 129 * 64 + 65 * 3 * 2 * 128,
        ),
        ("prefix-tuning", {"num_virtual_tokens": 5, "prefix_projection": True}, 5 * 128 + 129 * 128 + 129 * 768),
    ],
)
def test_trained_elements(kind: str, options: dict[str, Any], count: int) -> None:
    assert tuned(model_of(plan(kind, options))) == count


def test_a_prompt_makes_every_sequence_longer() -> None:
    """A prompt of 512 tokens costs the layers what 512 more tokens do."""
    assert virtual_tokens(model_of(plan("prompt-tuning", {"num_virtual_tokens": 512}))) == 512
    longer = kept(estimate(plan("prompt-tuning", {"num_virtual_tokens": 512})))
    wide = kept(estimate(plan("prompt-tuning", {"num_virtual_tokens": 1}, batch={"sequence": 1023})))
    assert longer == pytest.approx(wide, rel=0.01)


def test_a_prefix_is_of_keys_and_makes_no_sequence_longer() -> None:
    model = model_of(plan("prefix-tuning", {"num_virtual_tokens": 8}))
    prefix = prefix_of(model)
    assert prefix is not None
    assert (prefix.count, prefix.copies) == (8, 3)
    assert virtual_tokens(model) == 0
    assert prefix_of(model_of(plan_of(LLAMA))) is None


def test_a_prefix_has_the_head_dim_that_the_model_states() -> None:
    """16 tokens, 3 layers, keys and values, 2 heads of 128 where hidden size by heads would be 64."""
    stated = plan("prefix-tuning", {"num_virtual_tokens": 16}, model={"head_dim": 128})
    assert tuned(model_of(stated)) == 16 * 3 * 2 * 2 * 128


def kept(found: Estimate) -> int:
    loss = max((one for one in found.ledger.moments if one.name == "step 2: loss"), key=lambda one: one.allocated)
    lines = found.ledger.lines
    return sum(lines[at].unit * copies for at, copies in loss.live if lines[at].account == "activations")


def test_trained_rows_of_a_tied_embedding_are_the_heads_too() -> None:
    """The head then reads, and keeps, a whole table of its own."""
    options = {"token_indices": [1, 2]}
    tied, apart = (plan("trainable-tokens", options, model={"tie_word_embeddings": tie}) for tie in (True, False))
    assert [weight.name for weight in shared_weights(model_of(tied)) if weight.tuned]
    assert not [weight for weight in shared_weights(model_of(apart)) if weight.tuned]
    names = {line.name for line in estimate(tied).ledger.lines}
    assert "lm_head: table with the trained rows" in names


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("prompt-tuning", "adapter.options.num_virtual_tokens"),
        ("p-tuning", "adapter.options.num_virtual_tokens"),
        ("trainable-tokens", "adapter.options.token_indices"),
        ("prefix-tuning", "adapter.options.num_virtual_tokens"),
    ],
)
def test_what_is_missing_is_named(kind: str, path: str) -> None:
    with pytest.raises(InputError) as caught:
        estimate(plan(kind, {}))
    assert path in {problem.path for problem in caught.value.problems}


def test_rows_are_trained_beside_an_adapter() -> None:
    rows = {"trainable_token_indices": [1, 2, 3]}
    beside, without = (
        model_of(plan_of(LLAMA, adapter={"kind": "lora", "r": 8, "targets": ["o_proj"], "options": options}))
        for options in (rows, {})
    )
    assert tuned(beside) - tuned(without) == 3 * HIDDEN


@pytest.mark.parametrize(
    ("kind", "options"), [("prompt-tuning", {"num_virtual_tokens": 8}), ("trainable-tokens", {"token_indices": [1]})]
)
def test_a_model_without_a_transformers_embedding_is_named(kind: str, options: dict[str, Any]) -> None:
    with pytest.raises(InputError) as caught:
        estimate(plan(kind, options, model={"model_type": "megatron-gpt", "max_position_embeddings": 512}))
    assert "model.model_type" in {problem.path for problem in caught.value.problems}
