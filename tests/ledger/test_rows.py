"""Whose batches bring a mask of their tokens, and what of it attention reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.facts.allocator import CUDA
from trainledger.ledger.rows import Rows, brings, hides, rows_of
from trainledger.ledger.run import run_of
from trainledger.lines.line import Account

PADDED = {"padded": True}
DIFFERENT = {"median": 90, "longest": 200}
TWO = {"micro_batch": 2}


@pytest.mark.parametrize(
    ("sections", "expected"),
    [
        ({"lengths": DIFFERENT}, Rows.PADDED),
        ({"lengths": DIFFERENT, "stack": {"framework": "trl"}}, Rows.PADDED),
        ({"lengths": DIFFERENT, "stack": {"framework": "unsloth"}}, Rows.BARE),
        ({"lengths": DIFFERENT, "stack": {"kernels": ["unsloth"]}}, Rows.BARE),
        ({"lengths": DIFFERENT, "stack": {"framework": "deepspeed"}}, Rows.BARE),  # a script of one's own
        ({"lengths": PADDED, "stack": {"framework": "deepspeed"}}, Rows.PADDED),
        ({"lengths": PADDED, "stack": {"framework": "torchtune"}}, Rows.BARE),  # code of its own
        ({"lengths": PADDED, "stack": {"options": {"batch_tensors": ["input_ids", "labels"]}}}, Rows.BARE),
        ({"stack": {"options": {"batch_tensors": ["input_ids", "attention_mask"]}}}, Rows.MASKED),
        ({}, Rows.BARE),
    ],
)
def test_what_batches_say_of_their_tokens(sections: dict[str, Any], expected: Rows) -> None:
    assert rows_of(plan_of(batch=TWO, **sections)) is expected


def test_ranks_that_share_a_sequence_are_not_known() -> None:
    plan = plan_of(batch=TWO, lengths=PADDED, parallel={"strategy": "fsdp2", "cp": 2, "world": 2})
    assert brings(plan)
    assert not hides(plan)


def test_a_plain_loop_holds_the_mask_with_its_tokens() -> None:
    assert run_of(plan_of(batch=TWO, lengths=PADDED), "sm80").batch_tensors == 2
    assert run_of(plan_of(batch=TWO), "sm80").batch_tensors == 1


@pytest.mark.parametrize(
    ("release", "family", "expected"),
    [
        ("5.24.0", "llama", {"mask": "bool", "additive mask": "bf16"}),  # the second one in every layer
        ("4.52.4", "llama", {"mask": "bf16"}),
        ("4.53.3", "llama", {"mask": "bool", "additive mask": "bf16"}),
        ("4.57.3", "qwen2_moe", {"mask": "bf16"}),
        ("4.52.4", "gemma3_text", {"mask": "bf16", "mask in the window": "bf16"}),
        ("5.24.0", "gemma3_text", {"mask": "bool", "mask_sliding": "bool", "additive mask": "bf16"}),
    ],
)
def test_masks_that_stay_by_release(release: str, family: str, expected: dict[str, str]) -> None:
    model = {**LLAMA, "model_type": family, "num_hidden_layers": 6, "head_dim": 64, "sliding_window": 100}
    stack = {"versions": {"torch": "2.13.0", "transformers": release}, "attention": "sdpa"}
    ledger = estimate(plan_of(model, batch=TWO, lengths=PADDED, stack=stack)).ledger
    kept = [line for line in ledger.lines if line.account is Account.ACTIVATIONS and "mask" in line.name]
    assert {line.name.rpartition(": ")[-1]: line.dtype.name for line in kept} == expected


@pytest.mark.parametrize(
    ("release", "family", "lengths", "copied"),
    [
        ("4.46.3", "llama", PADDED, True),
        ("4.46.3", "llama", None, False),
        ("4.46.3", "gpt_neox", PADDED, False),
        ("4.57.3", "llama", PADDED, False),
    ],
)
def test_classes_that_copied_where_there_is_a_mask(
    release: str, family: str, lengths: dict[str, bool] | None, copied: bool
) -> None:
    stack = {"versions": {"torch": "2.13.0", "transformers": release}, "attention": "sdpa"}
    ledger = estimate(plan_of({**LLAMA, "model_type": family}, batch=TWO, lengths=lengths, stack=stack)).ledger
    assert any(line.name.endswith("attention: copy") for line in ledger.lines) is copied


@pytest.mark.parametrize(
    ("release", "attention", "size"),
    [
        ("5.24.0", "sdpa", 2 * 512 * 512),  # bools
        ("4.57.3", "sdpa", 2 * 512 * 512 * 2),
        ("5.24.0", "eager", 2 * 512 * 512 * 2),
        ("4.57.3", "eager", 2 * 512 * 2),  # one row for all queries
    ],
)
def test_an_encoder_s_mask_is_of_padding_alone(release: str, attention: str, size: int) -> None:
    keys = {"model_type": "bert", "architectures": ["BertForMaskedLM"], "tie_word_embeddings": True}
    stack = {"versions": {"torch": "2.13.0", "transformers": release}, "attention": attention}
    ledger = estimate(plan_of({**LLAMA, **keys}, batch=TWO, lengths=PADDED, stack=stack)).ledger
    (mask,) = (line for line in ledger.lines if line.name == "mask")
    assert mask.unit == max(size, CUDA.granule)
