"""PyTorch's attention as releases of Transformers call it: copies before the call, masks that are made in any case.

`attention_call_traces.jsonl` has the largest instant of every phase of a small model's run with that release's own
code, under PyTorch 2.13, as the trace reads it: written by running the release on this repository's tracer. Of runs
with padded rows, code that asks whether a tensor lies on a CUDA device was told that it does; of 4.46 they are of types
whose layers have nothing else that no rule covers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from tests.witness.runs import RECOMPUTE
from tests.witness.steps import phases
from trainledger.answer.estimate import estimate
from trainledger.facts.allocator import CUDA
from trainledger.facts.dtypes import BF16
from trainledger.ledger.run import run_of
from trainledger.lines.kernel_choice import Asked, choose

TRACES = Path(__file__).parents[1] / "data" / "attention_call_traces.jsonl"
PURE = {"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "bf16"}
AUTOCAST = {"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32"}


def _traces() -> Iterator[Any]:
    for line in TRACES.read_text(encoding="utf-8").splitlines():
        one = json.loads(line)
        names = (one["model"]["model_type"], one["attention"], one["recompute"])
        rows = [word for word in ("autocast", "padded") if one.get(word)]
        tensors = str(len(one["options"]["batch_tensors"]))
        yield pytest.param(one, id=" ".join([one["transformers"], *names, tensors, *rows]))


def _plan(one: dict[str, Any]) -> Any:
    return plan_of(
        one["model"],
        precision=AUTOCAST if one.get("autocast") else PURE,
        batch={"micro_batch": 2, "sequence": 256, "accumulation": 1},
        lengths={"padded": one.get("padded", False)},
        stack={
            "versions": {"torch": one["torch"], "transformers": one["transformers"]},
            "options": one["options"],
            "recompute": RECOMPUTE[one["recompute"]],
            "attention": one["attention"],
            "allocator": {"expandable_segments": True},
        },
    )


@pytest.mark.parametrize("one", list(_traces()))
def test_phases_are_those_of_the_release_s_own_code(one: dict[str, Any]) -> None:
    """Within two of the allocator's blocks; BERT's within four, as ours keeps a row of 256 positions more."""
    allowed = 4 if one["model"]["model_type"] == "bert" else 2
    found = phases(estimate(_plan(one)).ledger.moments)
    sizes = {f"{step}: {phase}": size for (step, phase), size in found.items()}
    assert sizes.keys() == one["phases"].keys()
    assert max(abs(sizes[name] - size) for name, size in one["phases"].items()) <= allowed * CUDA.granule


@pytest.mark.parametrize(
    ("transformers", "torch", "options", "recompute", "packed"),
    [
        ("4.57.3", "2.13.0", {"use_cache": False}, "none", True),
        ("4.53.0", "2.6.0", {"use_cache": False}, "none", True),
        ("4.53.0", "2.5.1", {"use_cache": False}, "none", False),
        ("4.52.4", "2.13.0", {"use_cache": False}, "none", False),
        ("5.0.0", "2.13.0", {"use_cache": False}, "none", False),
        ("4.57.3", "2.13.0", {}, "none", False),  # the cache that it makes then brings numbers of its own
        ("4.57.3", "2.13.0", {}, "full", True),
        ("4.57.3", "2.13.0", {"batch_tensors": ["input_ids", "attention_mask"]}, "full", False),
    ],
)
def test_which_releases_take_every_row_for_a_packed_one(
    transformers: str, torch: str, options: dict[str, Any], recompute: str, packed: bool
) -> None:
    stack = {"versions": {"torch": torch, "transformers": transformers}, "options": options, "recompute": recompute}
    assert run_of(plan_of(LLAMA, stack=stack), "sm80").setting.packed is packed


def test_a_trainer_s_batches_bring_a_mask_of_ones() -> None:
    versions = {"torch": "2.13.0", "transformers": "4.57.3", "accelerate": "1.10.0"}
    plan = plan_of(LLAMA, stack={"versions": versions, "recompute": "full"})
    assert not run_of(plan, "sm80").setting.packed


@pytest.mark.parametrize(
    ("family", "transformers", "dense"),
    [
        ("llama", "4.47.1", False), ("llama", "4.48.0", True), ("llama", "4.55.4", True), ("llama", "4.56.0", False),
        ("llama", "", False), ("opt", "4.51.3", False), ("opt", "4.52.4", True), ("qwen2_moe", "4.55.4", False),
    ],
)  # fmt: skip
def test_which_releases_copy_before_the_call(family: str, transformers: str, dense: bool) -> None:
    assert choose(Asked("sdpa", BF16, 64, family=family, transformers=transformers)).dense is dense


@pytest.mark.parametrize(("release", "recomputes"), [("4.46.3", True), ("4.51.3", False), ("4.52.4", True)])
def test_a_model_whose_release_never_recomputes(release: str, recomputes: bool) -> None:
    stack = {"versions": {"torch": "2.13.0", "transformers": release}, "recompute": "full"}
    plan = plan_of({**LLAMA, "model_type": "starcoder2"}, stack=stack)
    assert (run_of(plan, "sm80").recompute != "none") is recomputes
    assert any("never recomputes" in note for note in estimate(plan).notes.warnings) is not recomputes
