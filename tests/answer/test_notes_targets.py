"""Names of an adapter's targets that fit no module are told, with the nearest that does."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate

MIXTRAL = {**LLAMA, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}
NEW, OLD = {"transformers": "5.24.0", "peft": "0.21.2"}, {"transformers": "4.57.3", "peft": "0.18.1"}


def told(keys: dict[str, Any], targets: Any, versions: dict[str, str] = NEW) -> list[str]:
    adapter = {"kind": "lora", "r": 8, "targets": targets}
    found = estimate(plan_of(keys, adapter=adapter, stack={"versions": versions}))
    return [one for one in found.notes.warnings if one.startswith("adapter.targets")]


def test_a_name_that_fits_nothing_is_told_with_the_nearest() -> None:
    (note,) = told(LLAMA, ["q_proj", "down_prj"])
    assert "down_prj fits no module" in note
    assert note.endswith("Did you mean down_proj?")


@pytest.mark.parametrize(
    ("keys", "targets", "versions"),
    [
        (LLAMA, ["q_proj", "mlp.down_proj", "lm_head", "embed_tokens"], NEW),
        (LLAMA, "all-linear", NEW),
        (LLAMA, r".*\.q_proj", NEW),
        (MIXTRAL, ["q_proj", "w1", "w3", "gate"], NEW),
        (MIXTRAL, ["q_proj", "w1", "w3", "gate", "experts.2.w2"], OLD),
    ],
)
def test_names_that_fit_are_not(keys: dict[str, Any], targets: Any, versions: dict[str, str]) -> None:
    assert told(keys, targets, versions) == []


@pytest.mark.parametrize(
    ("extra", "said"),
    [("lm_haed", "Did you mean lm_head?"), ("layers.7", "fits no module"), ("norm", ""), ("layers.1", ""), ("mlp", "")],
)
def test_names_trained_whole_that_fit_nothing_are_told(extra: str, said: str) -> None:
    adapter = {"kind": "lora", "r": 8, "targets": ["q_proj"], "train_extra": [extra]}
    found = estimate(plan_of(LLAMA, adapter=adapter, stack={"versions": NEW})).notes.warnings
    notes = [one for one in found if one.startswith("adapter.train_extra") and "fits no" in one]
    assert len(notes) == bool(said)
    assert all(said in one for one in notes)
