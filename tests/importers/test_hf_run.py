"""Arguments of a Trainer's run into keys of the plan, and what their defaults are in which release."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.facts.import_hf_optim import OPTIMS
from trainledger.facts.names import LATER_OPTIMIZERS
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.importers.formats import Context
from trainledger.importers.hf_run import run_piece
from trainledger.importers.hf_settle import settle
from trainledger.importers.outside import merged
from trainledger.importers.piece import Given, Piece
from trainledger.importers.plan_file import draft_of
from trainledger.plan.schema import Plan

MODEL = {"model_name_or_path": "qwen2.5-0.5b", "max_length": 512, "per_device_train_batch_size": 1}


def pieces(args: dict[str, Any], versions: dict[str, str] | None = None) -> list[Piece]:
    piece = Piece("test", "run.yaml")
    run_piece(piece, {name: Given(value, f"run.yaml {name}") for name, value in args.items()}, Context(versions or {}))
    last = settle([piece], versions or {})
    assert last is not None
    return [piece, last]


def plan(args: dict[str, Any], **versions: str) -> Plan:
    found = pieces({**MODEL, **args}, versions)
    assert [one for piece in found for one in piece.problems] == []
    named = Piece("", "", rank=9)
    for name, release in versions.items():
        named.give(f"stack.versions.{name}", release, "")
    return draft_of(merged([*found, named])).plan


def precision(args: dict[str, Any], **versions: str) -> tuple[object, ...]:
    found = plan(args, **versions).precision
    return found.weights, found.compute, found.autocast, found.gradients, found.master


BF16 = {"bf16": True}
SHARDED = {**BF16, "dtype": "bfloat16", "fsdp": "full_shard auto_wrap", "fsdp_config": {"version": 1}}
ZERO = {"zero_optimization": {"stage": 2}, "bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}}


@pytest.fixture(autouse=True)
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Strategies that shard need ranks: their number is not asked about here."""
    monkeypatch.setattr("trainledger.importers.hf_settle.Joined._ranks", lambda self: None)


@pytest.mark.parametrize(
    ("args", "versions", "expected"),
    [
        # bf16 is autocast over whatever dtype the weights have: the release's, or the one that is asked for
        (BF16, {}, ("bf16", "bf16", True, "bf16", None)),
        (BF16, {"transformers": "4.48.0"}, ("fp32", "bf16", True, "fp32", None)),
        ({**BF16, "torch_dtype": "bfloat16"}, {"transformers": "4.48.0"}, ("bf16", "bf16", True, "bf16", None)),
        ({**BF16, "dtype": "float32"}, {}, ("fp32", "bf16", True, "fp32", None)),
        ({"dtype": "bfloat16"}, {}, ("bf16", "bf16", False, "bf16", None)),
        ({"fp16": "True", "dtype": "float32"}, {}, ("fp32", "fp16", True, "fp32", None)),
        # FSDP keeps the trained shards in float32 under mixed precision, since accelerate 0.30
        (SHARDED, {}, ("fp32", "bf16", True, "fp32", None)),
        (SHARDED, {"accelerate": "0.24.1"}, ("bf16", "bf16", True, "bf16", None)),
        ({**SHARDED, "lora_r": 8}, {}, ("bf16", "bf16", True, "fp32", None)),
        ({**SHARDED, "bf16": False}, {}, ("bf16", "bf16", False, "bf16", None)),
        # DeepSpeed casts the model, whatever it was loaded in
        ({**BF16, "dtype": "float32", "deepspeed": ZERO}, {}, ("bf16", "bf16", False, "bf16", "fp32")),
        ({"deepspeed": ZERO}, {}, ("fp32", "fp32", False, "fp32", "fp32")),
        # TRL: dtype float32 and bf16 are its own defaults now
        ({"_trl": True}, {}, ("fp32", "bf16", True, "fp32", None)),
        ({"_trl": True}, {"trl": "0.13.0", "transformers": "4.48.0"}, ("fp32", "fp32", False, "fp32", None)),
        ({"_trl": True, "fp16": True}, {}, ("fp32", "fp16", True, "fp32", None)),
    ],
)  # fmt: skip
def test_what_bf16_means(args: dict[str, Any], versions: dict[str, str], expected: tuple[object, ...]) -> None:
    assert precision(args, **versions) == expected


@pytest.mark.parametrize(
    ("versions", "expected"),
    [({}, ("full", False, "fused-linear")), ({"trl": "0.29.1"}, ("full", False, "full-fp32")),
     ({"trl": "0.19.1", "transformers": "4.52.0"}, ("none", None, "full-fp32")),
     ({"trl": "0.24.0", "transformers": "4.57.0"}, ("full", True, "full-fp32"))],
)  # fmt: skip
def test_trls_defaults_go_by_its_release(versions: dict[str, str], expected: tuple[object, ...]) -> None:
    stack = plan({"_trl": True, "_task": "sft"}, **versions).stack
    assert (stack.recompute.kind, stack.recompute.reentrant, stack.loss) == expected


@pytest.mark.parametrize(
    ("release", "version", "given", "expected"),
    [
        ("5.10.0", 2, {}, "FULL_STATE_DICT"),
        ("5.9.0", 2, {}, None),  # accelerate's: by shards
        ("5.10.0", 2, {"state_dict_type": "sharded_state_dict"}, "SHARDED_STATE_DICT"),
        ("4.57.0", 1, {"fsdp_state_dict_type": 3}, "SHARDED_STATE_DICT"),
    ],
)
def test_how_shards_are_saved(release: str, version: int, given: dict[str, Any], expected: str | None) -> None:
    config = {"version": version, "cpu_ram_efficient_loading": "true", **given}
    options = plan({**BF16, "fsdp": "full_shard", "fsdp_config": config}, transformers=release).parallel.options
    assert options.get("state_dict_type") == expected
    assert options["cpu_ram_efficient_loading"] is True


@pytest.mark.parametrize(("release", "expected"), [("5.10.0", "fsdp2"), ("5.9.0", "fsdp1"), ("4.57.0", "fsdp1")])
def test_the_trainers_fsdp_is_its_releases(release: str, expected: str) -> None:
    assert plan({**BF16, "fsdp": "full_shard"}, transformers=release).parallel.strategy == expected


@pytest.mark.parametrize("name", OPTIMS)
def test_every_optimizer_of_the_trainer_is_one_of_the_plan(name: str) -> None:
    known = {*OPTIMIZERS, *LATER_OPTIMIZERS.names}
    assert OPTIMS[name].optimizer in known
    assert plan({"optim": name}).optimizer.name == OPTIMS[name].optimizer


def test_the_default_optimizer_goes_by_release() -> None:
    assert plan({}).optimizer.implementation == "fused"
    assert plan({}, transformers="4.48.0", torch="2.5.0").optimizer.implementation == "foreach"


def test_an_adapter_and_four_bits() -> None:
    args = {"use_peft": "true", "lora_target_modules": "q_proj,v_proj", "load_in_4bit": True, "_trl": True}
    found = plan({**args, "use_bnb_nested_quant": "True"})
    assert found.adapter is not None
    assert (found.adapter.r, found.adapter.dropout, found.adapter.targets) == (16, 0.05, ("q_proj", "v_proj"))
    assert found.quantization is not None
    assert (found.quantization.kind, found.quantization.double) == ("nf4", True)
    bare = plan({"lora_r": 4, "load_in_4bit": True})
    assert bare.quantization is not None
    assert bare.quantization.kind == "fp4"


def test_lists_and_mappings_may_be_texts() -> None:
    found = plan({
        "activation_checkpointing": "True", "activation_checkpointing_kwargs": '{"use_reentrant": true}',
        "lora_r": "8", "lora_target_modules": "['q_proj', 'k_proj']",
    })  # fmt: skip
    assert (found.stack.recompute.kind, found.stack.recompute.reentrant) == ("full", True)
    assert found.adapter is not None
    assert found.adapter.targets == ("q_proj", "k_proj")


def test_no_clipping_and_no_recomputing() -> None:
    found = plan(
        {"max_grad_norm": 0, "gradient_checkpointing": False, "gradient_checkpointing_kwargs": {"use_reentrant": True}}
    )
    assert found.optimizer.grad_clip is None
    assert (found.stack.recompute.kind, found.stack.recompute.reentrant) == ("none", None)


def test_unknown_and_uncounted_keys_are_listed_and_silent_ones_are_not() -> None:
    piece, _ = pieces(
        {**MODEL, "weigth_decay": 0.1, "use_cache": True, "learning_rate": 1, "auto_find_batch_size": False}
    )
    assert [(one.path, one.near) for one in piece.unknown] == [("weigth_decay", "weight_decay")]
    assert [one.path for one in piece.uncounted] == ["use_cache"]


@pytest.mark.parametrize(
    ("args", "path"),
    [({"optim": "adamw_tourch"}, "optim"), ({"bf16": "perhaps"}, "bf16"), ({"lora_r": "x"}, "lora_r"),
     ({"load_in_4bit": True, "load_in_8bit": True}, "load_in_8bit"), ({"dtype": "bf17"}, "dtype"),
     ({"fsdp": "half_shard"}, "fsdp"),
     ({"fsdp": True, "fsdp_config": {"state_dict_type": "FULL"}}, "fsdp_state_dict_type"),
     ({"per_device_train_batch_size": 0}, "per_device_train_batch_size"),
     ({"deepspeed": {"zero_optimization": {"stage": 9}}}, "zero_optimization.stage"),
     ({"deepspeed": {"zero_optimization": {"sub_group_size": "auto"}}}, "zero_optimization.sub_group_size")],
)  # fmt: skip
def test_a_wrong_value_is_a_problem_with_its_key(args: dict[str, Any], path: str) -> None:
    piece, _ = pieces({**MODEL, **args})
    assert [one.path for one in piece.problems] == [path]
    assert piece.problems[0].where.startswith("run.yaml")


def test_the_trainer_fills_an_auto_and_never_reads_it_as_a_number() -> None:
    config = {**ZERO, "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}, "gradient_clipping": "auto"}
    found = plan({**BF16, "max_grad_norm": 0.5, "deepspeed": config})
    assert found.parallel.options == {"reduce_bucket_size": "auto"}
    assert found.optimizer.grad_clip == 0.5
    assert plan({**BF16, "max_grad_norm": 0.5, "deepspeed": ZERO}).optimizer.grad_clip is None


def test_a_file_that_an_argument_names_is_to_be_read() -> None:
    piece, _ = pieces({**MODEL, "deepspeed": "ds.json", "fsdp": "full_shard", "fsdp_config": "fsdp.json"})
    assert [path for path, _ in piece.files] == ["fsdp.json", "ds.json"]


def test_a_mesh_says_the_degrees() -> None:
    mesh = {"dp_replicate_size": 2, "dp_shard_size": 4}
    found = pieces({**MODEL, **BF16, "fsdp": True, "fsdp_config": {"version": 2}, "parallelism_config": mesh})
    last = found[1]
    assert (last.given["parallel.strategy"].value, last.given["parallel.shard"].value) == ("hsdp", 4)


@pytest.mark.parametrize(
    ("args", "expected"),
    [({}, "given"), ({"use_peft": True}, None), ({"precompute_ref_log_probs": True}, None)],
)
def test_a_preference_run_has_a_second_model_unless_it_needs_none(args: dict[str, Any], expected: object) -> None:
    _, last = pieces({**MODEL, "_trl": True, "_task": "dpo", **args})
    found = last.filled.get("stack.options.ref_model")
    assert (found.value if found else None) == expected


@pytest.mark.parametrize(("release", "expected"), [("1.16.0", True), ("0.24.0", None)])
def test_trl_recomputes_with_reentrance_under_zero3_with_an_adapter(release: str, expected: object) -> None:
    config = {"zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
    _, last = pieces({**MODEL, **BF16, "_trl": True, "use_peft": True, "deepspeed": config}, {"trl": release})
    found = last.given.get("stack.recompute.reentrant")
    assert (found.value if found else None) == expected


@pytest.mark.parametrize(
    ("task", "release", "more", "expected"),
    [
        ("dpo", "0.24.0", {"use_liger_kernel": True}, None),
        ("dpo", "0.24.0", {"use_liger_loss": True}, "fused-linear"),
        ("kto", "0.26.2", {"use_liger_kernel": True}, "fused-linear"),
        ("orpo", "0.26.2", {"use_liger_kernel": True}, None),
        ("sft", "0.24.0", {"use_liger_kernel": True}, "fused-linear"),
        ("grpo", "0.24.0", {"use_liger_kernel": True}, None),
        ("grpo", "0.24.0", {"use_liger_loss": True}, "fused-linear"),
    ],
)
def test_whether_ligers_kernels_fuse_a_trainers_loss(
    task: str, release: str, more: dict[str, Any], expected: object
) -> None:
    _, last = pieces({**MODEL, "_trl": True, "_task": task, **more}, {"trl": release})
    found = last.given.get("stack.loss")
    assert (found.value if found else None) == expected


SFT = {"_task": "sft", "_trl": True}


@pytest.mark.parametrize(
    ("release", "named", "expected"),
    [
        ("1.3.0", None, "full-fp32"),
        ("1.6.0", "chunked_nll", "fused-linear"),
        ("1.6.0", "dft", "full-fp32"),
        ("1.10.0", None, "fused-linear"),
        ("1.10.0", "nll", "full-fp32"),
        ("1.10.0", "chunked_nll", "fused-linear"),
        ("1.16.0", "nll", "fused-linear"),
        ("1.16.0", "dft", "fused-linear"),
    ],
)
def test_the_loss_that_sft_names(release: str, named: str | None, expected: str) -> None:
    found = plan({**SFT, **({"loss_type": named} if named else {})}, trl=release, transformers="4.57.1")
    assert found.stack.loss == expected
    assert found.stack.options.get("loss_type") == (["dft"] if named == "dft" else None)


def test_of_losses_that_are_added_up_a_cross_entropy_counts() -> None:
    dpo = {"_task": "dpo", "_trl": True, "use_weighting": True, "disable_dropout": False}
    assert plan({**dpo, "loss_type": "[sigmoid, bco_pair, sft]"}, trl="0.24.0").stack.options == {
        "loss_type": ["sigmoid", "bco_pair", "sft"], "use_weighting": True, "disable_dropout": False,
        "ref_model": "given",
    }  # fmt: skip
    assert "loss_type" not in plan({**dpo, "loss_type": "ipo"}, trl="0.24.0").stack.options


@pytest.mark.parametrize("version", ["4.45.2", "5.24.0"])
@pytest.mark.parametrize(
    ("model", "weights"), [("qwen2.5-0.5b", "bf16"), ("gpt2", "fp32"), ("google/gemma-2-2b", "fp32")]
)
def test_auto_is_the_dtype_of_the_files(model: str, weights: str, version: str) -> None:
    found = plan({"model_name_or_path": model, "torch_dtype": "auto"}, transformers=version)
    assert found.precision.weights == weights


@pytest.mark.parametrize(("version", "weights"), [("4.45.2", "fp32"), ("5.24.0", "bf16")])
def test_a_release_decides_where_no_dtype_is_asked_for(version: str, weights: str) -> None:
    assert plan({}, transformers=version).precision.weights == weights
    assert plan({"model_name_or_path": "gpt2"}, transformers=version).precision.weights == "fp32"


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ({}, "cpu"),
        ({"gradient_checkpointing": False}, None),
        ({"use_liger_kernel": True}, None),
        ({"_task": "dpo"}, None),
    ],
)
def test_offloaded_activations_are_counted_where_they_can_be(more: dict[str, Any], place: str | None) -> None:
    args = {**SFT, "gradient_checkpointing": True, "activation_offloading": True, **more}
    found = plan({name: value for name, value in args.items() if value is not None}, trl="1.10.0")
    assert found.offload.activations == place
    assert ("activation_offloading" in found.stack.options) == (place is None)
