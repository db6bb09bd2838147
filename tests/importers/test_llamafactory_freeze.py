"""Layers that are trained beside frozen ones as LLaMA-Factory says them, and what export writes of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.plans import LLAMA
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.importers.alike import differences
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.export import export, read_back
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of

OPTION = "cast_trainable_params_to_fp32"
FREEZE = "stage: sft\nfinetuning_type: freeze\nbf16: true\ncutoff_len: 512\n"


def read(tmp_path: Path, text: str) -> Draft:
    path = tmp_path / "run.yaml"
    path.write_text(text)
    return read_any([str(path)])


@pytest.mark.parametrize(
    ("model", "keys", "trained"),
    [
        ("llama-3.2-1b", "freeze_trainable_layers: 2", ["layers.14", "layers.15"]),
        ("llama-3.2-1b", "", ["layers.14", "layers.15"]),
        ("llama-3.2-1b", "freeze_trainable_layers: -2", ["layers.0", "layers.1"]),
        ("llama-3.2-1b", "freeze_trainable_layers: 99", [f"layers.{at}" for at in range(16)]),
        ("llama-3.2-1b", "freeze_trainable_layers: 0\nfreeze_extra_modules: embed_tokens", ["embed_tokens"]),
        (
            "llama-3.2-1b",
            "freeze_trainable_layers: 1\nfreeze_trainable_modules: mlp,self_attn",
            ["layers.15.mlp", "layers.15.self_attn"],
        ),
        ("llama-3.2-1b", "freeze_trainable_layers: 1\nfreeze_extra_modules: norm", ["layers.15", "*norm*"]),
        ("gpt2", "freeze_trainable_layers: 1", ["h.11"]),
        ("mixtral-8x7b", "freeze_trainable_layers: 1", ["31"]),  # an expert's number would be meant too
    ],
)
def test_llama_factory_s_freeze(tmp_path: Path, model: str, keys: str, trained: list[str]) -> None:
    found = read(tmp_path, f"model_name_or_path: {model}\n{FREEZE}{keys}\n")
    assert list(found.plan.trainable) == trained
    assert found.plan.stack.options == {OPTION: True}
    assert found.plan.precision.weights == "bf16"


@pytest.mark.parametrize("more", ["pure_bf16: true", "use_badam: true"])
def test_what_is_trained_in_16_bits(tmp_path: Path, more: str) -> None:
    assert OPTION not in read(tmp_path, f"model_name_or_path: llama-3.2-1b\n{FREEZE}{more}\n").plan.stack.options


def test_layers_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="use_llama_pro"):
        read(tmp_path, f"model_name_or_path: llama-3.2-1b\n{FREEZE}freeze_trainable_layers: 3\nuse_llama_pro: true\n")


def test_frozen_layers_are_not_recomputed_and_keep_nothing(tmp_path: Path) -> None:
    """Whatever the release of Transformers: LLaMA-Factory's own checkpoints ask the first trained layer's input."""
    text = f"model_name_or_path: llama-3.2-1b\n{FREEZE}"
    found = [estimate(read(tmp_path, text + f"freeze_trainable_layers: {count}\n").plan) for count in (1, 2, 16)]
    peaks = [one.peak.allocated.expected for one in found]
    assert peaks[0] < peaks[1] < peaks[2]
    layer = (found[2].parameters.trainable - found[0].parameters.trainable) // 15
    assert found[0].parameters.trainable == layer
    assert not [one for one in found[0].notes.warnings if "enable_input_require_grads" in one or "run backward" in one]


@pytest.mark.parametrize("to", ["axolotl", "llama-factory"])
@pytest.mark.parametrize(
    "trainable",
    [
        ["model.layers.2.*"],
        ["model.layers.1", "model.layers.2"],
        ["layers.[12]", "lm_head"],
        ["layers.0"],
        ["layers.1.mlp", "layers.2.mlp", "*norm*"],
    ],
)
def test_a_plan_is_written_and_read_again(to: str, trainable: list[str]) -> None:
    plan: dict[str, Any] = {
        "model": LLAMA, "task": "sft", "trainable": trainable, "batch": {"micro_batch": 1, "sequence": 512},
        "precision": {"weights": "bf16", "compute": "bf16", "autocast": True},
        "stack": {"framework": "transformers", "recompute": {"kind": "full", "reentrant": False}},
    }  # fmt: skip
    draft = draft_of(Document(plan, {}))
    found = export(draft, to)
    back = read_back(found.files, found.reads, draft.plan.stack.versions)
    assert "trainable" not in [one.path for one in differences(draft.plan, back)]


@pytest.mark.parametrize("trainable", [["layers.0", "layers.2"], ["q_proj"], ["layers.1"]])
def test_what_llama_factory_cannot_train_is_refused(trainable: list[str]) -> None:
    plan = {"model": LLAMA, "task": "sft", "trainable": trainable, "batch": {"micro_batch": 1, "sequence": 512}}
    with pytest.raises(InputError, match="trainable"):
        export(draft_of(Document(plan, {})), "llama-factory")
