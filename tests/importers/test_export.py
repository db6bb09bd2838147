"""Plans as the files of a framework: what is written, what comes back, what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from shlex import split
from typing import Any

import pytest
import yaml

from tests.importers import native
from tests.importers.test_outside_files import CASES, FILES, sets, sources
from tests.plans import LLAMA
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.importers.alike import differences
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.export import Exported, export, read_back, write
from trainledger.importers.formats import EMITTERS
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of
from trainledger.importers.sets import apply_sets

EXPORTED = Path(__file__).parent / "exported"
RECORDS = Path(__file__).parents[1] / "data"
# What files of a kind are written as. A kind that is not here is read and has no other direction.
FORMATS = {
    "axolotl": "axolotl", "llamafactory": "llama-factory", "trl": "trl", "accelerate": "accelerate",
    "deepspeed": "deepspeed", "megatron": "megatron", "trainer": "accelerate", "script": "accelerate",
}  # fmt: skip
FOLDERS = [case for case in CASES if case.split("/")[0] in FORMATS and "broken" not in case]
ACTING = "roles."  # who acts beside the policy, of which no format but the plan's says all
NATIVE = [path for name in ("torchtune", "torchtitan") for path in native.cases(name)]
NATIVE_REFUSED = {"kd.yaml": "task"}
# Lines that read the newest code, where a TOML file is an older release's.
NATIVE_UNSAID = {name: ["stack.loss"] for name in ("module_8b.sh", "deepseek_671b.sh")}


def unsaid(found: Exported) -> list[str]:
    return [one.path for one in found.unsaid if not one.path.startswith("device")]


def again(found: Exported, draft: Draft) -> None:
    """What is written comes back: the same keys, and the same memory."""
    plan = read_back(found.files, found.reads, draft.plan.stack.versions)
    assert [one.path for one in differences(draft.plan, plan)] == [one.path for one in found.unsaid]


@pytest.mark.parametrize("case", FOLDERS)
def test_a_run_that_was_read_is_written_and_read_again(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FILES)
    draft = read_any(sources(case), sets(case))
    to = FORMATS[case.split("/", maxsplit=1)[0]]
    if to == "deepspeed" and draft.plan.parallel.strategy not in ("ddp", "zero1", "zero2", "zero3"):
        pytest.skip("DeepSpeed does not run")
    found = export(draft, to)
    assert [path for path in unsaid(found) if not path.startswith(ACTING)] == []
    again(found, draft)


@pytest.mark.parametrize("path", NATIVE, ids=native.ids(NATIVE))
def test_a_native_trainers_run_is_written_and_read_again(path: Path) -> None:
    draft = read_any([str(path)])
    if path.name in NATIVE_REFUSED:
        with pytest.raises(InputError) as caught:
            export(draft, path.parent.name)
        assert [one.path for one in caught.value.problems] == [NATIVE_REFUSED[path.name]]
        return
    found = export(draft, path.parent.name)
    assert unsaid(found) == NATIVE_UNSAID.get(path.name, [])
    again(found, draft)


def rows(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (RECORDS / name).read_text(encoding="utf-8").splitlines()]


MEASURED = [
    *((row, "accelerate") for row in rows("records_outside.jsonl")),
    *((row, "megatron") for row in rows("records_outside_megatron.jsonl")),
]


@pytest.mark.parametrize(("row", "to"), MEASURED, ids=[row["id"] for row, _ in MEASURED])
def test_a_measured_runs_files_give_its_estimate(row: dict[str, Any], to: str) -> None:
    draft = draft_of(Document(row["plan"], {}))
    found = export(draft, to)
    plan = read_back(found.files, found.reads, draft.plan.stack.versions)
    back = estimate(plan.model_copy(update={"device": draft.plan.device}))
    mine = estimate(draft.plan)
    assert unsaid(found) == []
    assert (back.peak, back.steps, back.parameters) == (mine.peak, mine.steps, mine.parameters)


def plan(**sections: Any) -> Draft:
    """A plan of Llama's shape, supervised training in bfloat16."""
    data: dict[str, Any] = {
        "model": LLAMA,
        "task": "sft",
        "precision": {"weights": "bf16", "compute": "bf16", "autocast": True},
        "batch": {"micro_batch": 2, "sequence": 512, "accumulation": 4},
        "stack": {"attention": "flash", "recompute": {"kind": "full", "reentrant": False}},
    }
    return draft_of(Document({**data, **sections}, {}))


LORA = {"adapter": {"kind": "lora", "r": 8, "targets": ["q_proj", "v_proj"], "dropout": 0.05}}
ZERO3 = {
    "parallel": {"strategy": "zero3", "world": 16, "options": {"overlap_comm": True}},
    "precision": {"weights": "bf16", "compute": "bf16", "autocast": False, "master": "fp32"},
}
FSDP2 = {"parallel": {"strategy": "fsdp2", "world": 8}}
TUNE = {"stack": {"framework": "torchtune", "attention": "sdpa", "recompute": "full", "loss": "chunked"}}
TITAN = {"stack": {"framework": "torchtitan", "attention": "sdpa", "recompute": {"kind": "selective", "policy": "op"}}}
MEGATRON = {
    "model": {**LLAMA, "head_dim": 64},
    "task": "pretrain",
    "precision": {"weights": "bf16", "compute": "bf16", "gradients": "fp32", "master": "fp32"},
    "optimizer": {"name": "adam"},
    "parallel": {"strategy": "megatron-distopt", "world": 8, "tp": 2, "sp": True, "pp": 1},
    "stack": {"framework": "megatron", "recompute": "none", "attention": "flash", "kernels": ["te"]},
}
WRITTEN: dict[str, Draft] = {
    "deepspeed": plan(**ZERO3),
    "accelerate": plan(**FSDP2),
    "axolotl": plan(**LORA),
    "llama-factory": plan(**LORA, quantization={"kind": "nf4", "double": True}),
    "trl": plan(**LORA, stack={"versions": {"trl": "1.16.0"}, "attention": "sdpa", "recompute": "none"}),
    "torchtune": plan(**{"precision": {"weights": "bf16"}, **TUNE, "model": "llama-3.2-1b"}),
    "torchtitan": plan(
        **{**TITAN, **FSDP2, "model": "llama-3.1-8b", "task": "pretrain", "precision": {"weights": "fp32"}}
    ),
    "megatron": plan(**MEGATRON),
}


def test_every_format_has_its_written_files() -> None:
    assert set(WRITTEN) == set(EMITTERS)
    assert {path.name for path in EXPORTED.iterdir()} == set(EMITTERS)


@pytest.mark.parametrize("to", EMITTERS)
def test_what_is_written(to: str, request: pytest.FixtureRequest) -> None:
    found = export(WRITTEN[to], to)
    if request.config.getoption("--update-golden"):
        (EXPORTED / to).mkdir(parents=True, exist_ok=True)
        write(found.files, str(EXPORTED / to))
    kept = {path.relative_to(EXPORTED / to).as_posix() for path in (EXPORTED / to).rglob("*") if path.is_file()}
    assert kept == {name for name, _ in found.files}
    for name, text in found.files:
        assert text == (EXPORTED / to / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("to", EMITTERS)
def test_the_head_says_how_the_plan_comes_back(to: str, tmp_path: Path) -> None:
    """The options that stand in the files' first lines bring the whole plan back, what is not said included."""
    draft = draft_of(apply_sets(Document(json.loads(json.dumps(_data(WRITTEN[to]))), {}), ["device=h100-80gb"]))
    found = export(draft, to)
    write(found.files, str(tmp_path))
    text = (tmp_path / found.reads).read_text(encoding="utf-8")
    told = next(line for line in text.splitlines() if "trainledger estimate" in line)
    words = split(told)
    options = [words[at + 1] for at, word in enumerate(words) if word == "--set"]
    versions = dict(words[at + 1].split("==") for at, word in enumerate(words) if word == "--framework-version")
    assert "device=h100-80gb" in " ".join(options).replace("device.name", "device")
    back = read_any([str(tmp_path / found.reads)], options, versions=versions)
    assert back.unknown == ()
    assert back.uncounted == ()
    assert not [one.path for one in differences(draft.plan, back.plan) if not one.path.startswith("device")]
    assert back.plan.device == draft.plan.device


def _data(draft: Draft) -> dict[str, Any]:
    from trainledger.plan.schema import as_mapping

    return as_mapping(draft.plan)


@pytest.mark.parametrize(
    ("to", "path", "sections"),
    [
        ("deepspeed", "parallel.strategy", FSDP2),
        ("torchtune", "parallel.strategy", {**TUNE, "parallel": {"strategy": "ddp", "world": 2}}),
        ("torchtitan", "adapter.kind", {**TITAN, **LORA}),
        ("torchtitan", "model", {**TITAN, **FSDP2}),
        ("megatron", "adapter.kind", {**MEGATRON, **LORA}),
        ("trl", "task", {"task": "pretrain"}),
        ("llama-factory", "task", {"task": "distill"}),
        ("axolotl", "optimizer.name", {"optimizer": {"name": "lamb"}}),
        ("accelerate", "adapter.kind", {"adapter": {"kind": "ia3", "targets": ["q_proj"]}}),
        ("accelerate", "quantization.kind", {**LORA, "quantization": {"kind": "gptq4"}}),
        ("llama-factory", "parallel.pp", {"parallel": {"strategy": "fsdp2", "world": 8, "pp": 2}}),
        ("accelerate", "stack.framework", TUNE),
        ("torchtitan", "stack.framework", TUNE),
        ("axolotl", "model.model_type", {**MEGATRON, "stack": {"framework": "transformers"}, "parallel": {}}),
    ],
)
def test_what_a_framework_cannot_run_is_refused_by_its_key(to: str, path: str, sections: dict[str, Any]) -> None:
    model = {"model_type": "megatron-gpt", **{k: v for k, v in LLAMA.items() if k != "model_type"}}
    given = {**sections, "model": model} if path == "model.model_type" else sections
    with pytest.raises(InputError) as caught:
        export(plan(**given), to)
    assert path in {one.path for one in caught.value.problems}


def test_an_unknown_format_offers_the_nearest() -> None:
    with pytest.raises(InputError, match="Did you mean axolotl"):
        export(plan(), "axoltl")


def test_what_the_files_do_not_say_is_named_with_what_they_come_to() -> None:
    found = export(
        plan(stack={"loss": "full", "attention": "flash", "env": {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}}), "trl"
    )
    one = next(one for one in found.unsaid if one.path == "stack.loss")
    assert (one.value, one.change) == ("full", "--set stack.loss=full")
    assert one.why == "its files come to fused-linear"
    assert "export CUBLAS_WORKSPACE_CONFIG=:4096:8  # stack.env.CUBLAS_WORKSPACE_CONFIG" in dict(found.files)["trl.sh"]


def test_a_plan_that_names_no_framework_is_resolved_with_the_formats() -> None:
    data = {"model": "llama-3.1-8b", "batch": {"micro_batch": 1, "sequence": 512}, "parallel": {"world": 1}}
    found = export(draft_of(Document(data, {})), "megatron")
    assert "--num-layers 32" in dict(found.files)["megatron.sh"]


def test_a_model_without_a_name_is_written_beside_the_file() -> None:
    files = dict(export(plan(), "axolotl", "run.yml").files)
    assert list(files) == ["run.yml", "run.sh", "run-model/config.json"]
    assert json.loads(files["run-model/config.json"]) == LLAMA
    assert yaml.safe_load(files["run.yml"])["base_model"] == "./run-model"


def test_every_key_says_which_of_the_plans_it_is() -> None:
    text = dict(export(WRITTEN["axolotl"], "axolotl").files)["axolotl.yaml"]
    assert "micro_batch_size: 2  # batch.micro_batch" in text
    assert "adapter: lora  # adapter.kind" in text


def test_a_key_that_follows_one_which_is_not_said_is_named_too(tmp_path: Path) -> None:
    """Compute is said beside the files, and what is reduced follows it."""
    precision = {"weights": "fp32", "compute": "bf16", "autocast": False, "gradients": "fp32", "reduce": "fp32"}
    hybrid = {"strategy": "hsdp", "world": 16, "shard": 8, "options": {"fsdp_version": 1}}
    draft = plan(precision=precision, parallel=hybrid, stack={"versions": {"accelerate": "1.15.0"}})
    found = export(draft, "llama-factory")
    write(found.files, str(tmp_path))
    sets = [split(one.change)[1] for one in found.unsaid]
    back = read_any([str(tmp_path / found.reads)], sets, versions=draft.plan.stack.versions)
    assert list(differences(draft.plan, back.plan)) == []


@pytest.mark.parametrize("to", EMITTERS)
def test_any_run_is_written_or_refused(to: str) -> None:
    """Measured runs, whatever their framework: no other error, and what is written comes back."""
    framework = {"torchtune": "torchtune", "torchtitan": "torchtitan", "megatron": "megatron"}.get(to, "transformers")
    for row in (row for row in rows("records_sample.jsonl") if "plan" in row):
        data = {**row["plan"], "stack": {**row["plan"].get("stack", {}), "framework": framework, "versions": {}}}
        try:
            draft = draft_of(Document(data, {}))
            found = export(draft, to)
        except InputError:
            continue
        again(found, draft)


def test_trls_own_name_of_quantised_scales_is_written() -> None:
    draft = plan(**LORA, quantization={"kind": "nf4", "double": True})
    assert "use_bnb_nested_quant: true" in dict(export(draft, "trl").files)["trl.yaml"]
    assert "--bnb_4bit_use_double_quant True" in dict(export(draft, "accelerate").files)["accelerate.sh"]


def test_accelerates_file_leaves_to_deepspeeds_what_it_does_not_take_beside_it() -> None:
    text = dict(export(plan(**ZERO3), "accelerate").files)["accelerate.yaml"]
    held = yaml.safe_load(text)
    assert "mixed_precision" not in held
    assert held["deepspeed_config"] == {
        "deepspeed_config_file": "accelerate.deepspeed.json", "zero3_init_flag": True,
    }  # fmt: skip
    two = {**ZERO3, "parallel": {"strategy": "zero2", "world": 8}}
    held = yaml.safe_load(dict(export(plan(**two), "accelerate").files)["accelerate.yaml"])
    assert held["deepspeed_config"] == {"deepspeed_config_file": "accelerate.deepspeed.json"}


MICRO = {"micro_batch": 1, "sequence": 512, "accumulation": 16}
POINTS = {"pipeline_parallel_split_points": [f"layers.{at}" for at in (3, 7, 12, 20, 24, 25, 30)]}


@pytest.mark.parametrize(
    "more",
    [
        {"stack": {**TITAN["stack"], "options": {"compile": {"components": ["loss"]}}}},
        {"stack": {**TITAN["stack"], "compile": True, "options": {"compile": {"components": ["model"]}}}},
        {"parallel": {"pp": 4, "vpp": 2, "schedule": "interleaved", "options": POINTS}},
        {"parallel": {"pp": 4, "vpp": 3, "schedule": "interleaved"}},
        {"parallel": {"pp": 4, "vpp": 2, "schedule": "zb-v"}},
    ],
)
def test_what_torchtitan_compiles_and_its_stages_come_back(more: dict[str, Any]) -> None:
    given = {**TITAN, "model": "llama-3.1-8b", "task": "pretrain", "batch": MICRO, **more}
    given["parallel"] = {"strategy": "fsdp2", "world": 8, **more.get("parallel", {})}
    draft = plan(**given)
    again(export(draft, "torchtitan"), draft)


def test_stages_that_torchtitan_cannot_count_are_refused() -> None:
    parallel = {"strategy": "fsdp2", "world": 8, "pp": 2, "vpp": 5, "schedule": "interleaved"}
    draft = plan(**{**TITAN, "model": "llama-3.1-8b", "task": "pretrain", "batch": MICRO, "parallel": parallel})
    with pytest.raises(InputError, match="4 layers a stage make 9 of 10 stages"):
        export(draft, "torchtitan")
