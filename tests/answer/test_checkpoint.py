"""Checkpoints: what each format writes, by file and by rank, how many are kept, and how long one takes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.checkpoint import Checkpoint
from trainledger.answer.disk import beside
from trainledger.answer.estimate import estimate
from trainledger.facts.checkpoints import FORMATS
from trainledger.plan.names import CheckpointFormat
from trainledger.plan.schema import Plan

MIXED = {"weights": "bf16", "gradients": "bf16", "master": "fp32"}
COUNT = estimate(plan_of()).parameters.total
LORA = {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "fp32"}


def of(plan: Plan) -> Checkpoint:
    return beside(estimate(plan)).checkpoint


def made(**sections: Any) -> Checkpoint:
    return of(plan_of(batch={"sequence": 16}, **sections))


def files(found: Checkpoint) -> dict[str, tuple[int, int]]:
    return {one.name.split("/")[-1]: (one.bytes, one.count) for one in found.files}


def test_every_word_has_a_row() -> None:
    assert set(FORMATS) == set(CheckpointFormat.__args__)


def test_the_trainer_writes_weights_and_the_optimizer() -> None:
    found = made()
    assert files(found) == {"model.safetensors": (2 * COUNT, 1), "optimizer.pt": (4 * COUNT, 1)}
    assert found.total == found.rank_bytes == 6 * COUNT
    assert made(save={"optimizer": False}).total == found.weights_only == 2 * COUNT


def test_weights_alone_in_another_dtype() -> None:
    found = made(save={"format": "safetensors", "dtype": "fp32"})
    assert found.total == found.weights_only == 4 * COUNT
    assert any("nothing here resumes" in note for note in found.notes)


def test_files_of_llama_3_8b_are_those_that_were_published() -> None:
    """Sizes of meta-llama/Meta-Llama-3-8B's four files, with headers of some KiB; written with files up to 5 GB."""
    stack = {"versions": {"torch": "2.3.0", "transformers": "4.40.2"}}
    found = of(plan_of("llama-3-8b", save={"format": "safetensors"}, stack=stack, batch={"sequence": 16}))
    published = [4_976_698_672, 4_999_802_720, 4_915_916_176, 1_168_138_808]
    assert [one.bytes for one in found.files] == pytest.approx(published, rel=2e-5)
    newer = of(plan_of("llama-3-8b", save={"format": "safetensors"}, batch={"sequence": 16}))
    assert [one.name for one in newer.files] == ["model.safetensors"]
    small = of(plan_of("llama-3-8b", save={"format": "safetensors", "file_bytes": "1MB"}, batch={"sequence": 16}))
    assert len(small.files) == 291  # a tensor larger than a file stands alone; norms share


def test_an_adapter_is_saved_without_its_base() -> None:
    answer = estimate(plan_of(adapter=LORA, batch={"sequence": 16}))
    found, trained = beside(answer).checkpoint, answer.parameters.trainable
    assert files(found) == {"adapter_model.safetensors": (4 * trained, 1), "optimizer.pt": (8 * trained, 1)}
    assert any("base model is needed" in note for note in found.notes)


@pytest.mark.parametrize(
    ("targets", "tied", "whole"),
    [(["q_proj"], False, 0), (["q_proj", "embed_tokens"], False, 1), (["q_proj", "lm_head"], False, 1),
     ([".*(q_proj|lm_head)"], False, 1), (["embed_tokens", "lm_head"], True, 2)],
)  # fmt: skip
def test_peft_saves_embeddings_that_an_adapter_goes_to(targets: list[str], tied: bool, whole: int) -> None:
    """As save_pretrained of PEFT 0.21.2 does: each such matrix once, a tied one under both of its names."""
    named: Any = targets if len(targets) > 1 or ".*" not in targets[0] else targets[0]
    model = {**LLAMA, "tie_word_embeddings": tied}
    answer = estimate(plan_of(model, adapter={**LORA, "targets": named}, batch={"sequence": 16}))
    found, trained = beside(answer).checkpoint, answer.parameters.trainable
    assert files(found)["adapter_model.safetensors"] == (4 * trained + whole * 2 * 1024 * 256, 1)
    assert files(found)["optimizer.pt"] == (8 * trained, 1)
    stack = {"versions": {"torch": "2.1.0", "transformers": "4.34.1", "peft": "0.6.2"}}
    if named == targets:
        older = made(adapter={**LORA, "targets": named}, stack=stack)
        assert files(older)["adapter_model.safetensors"] == (4 * trained, 1)


@pytest.mark.parametrize("strategy", ["none", "zero2", "zero3"])
def test_what_is_exported_of_an_adapter_is_written_once(strategy: str) -> None:
    options = {"stage3_gather_16bit_weights_on_model_save": True} if strategy == "zero3" else {}
    parallel = {"strategy": strategy, "dp": 1 if strategy == "none" else 4, "options": options}
    found = made(adapter={**LORA, "dtype": "bf16"}, precision=MIXED, parallel=parallel, save={"export": True})
    names = [one.name for one in found.files if one.name.endswith("safetensors")]
    assert names == ["adapter_model.safetensors"]


def test_torchtune_merges_an_adapter_and_keeps_one_recipe_state() -> None:
    """Files as its checkpointer writes them (0.6.1), byte for byte: the base's own files, the adapter twice."""
    stack = {"framework": "torchtune", "versions": {"torch": "2.6.0", "torchtune": "0.6.1"}, "loss": None}
    lora = {**LORA, "dtype": "bf16"}
    answer = estimate(plan_of(adapter=lora, stack=stack, batch={"sequence": 16}, save={"limit": 2}))
    found, trained = beside(answer).checkpoint, answer.parameters.trainable
    base = answer.parameters.total - trained
    assert files(found) == {
        "model-00001-of-00001.safetensors": (2 * base, 1), "adapter_model.pt": (2 * trained, 1),
        "adapter_model.safetensors": (2 * trained, 1), "recipe_state.pt": (4 * trained, 1),
    }  # fmt: skip
    assert found.weights_only == 2 * base
    assert found.disk == 3 * (2 * base + 4 * trained) + 4 * trained
    assert any("for you to delete" in note for note in found.notes)
    alone = made(adapter=lora, stack=stack, save={"format": "adapter"})
    assert list(files(alone)) == ["adapter_model.pt", "adapter_model.safetensors", "recipe_state.pt"]
    assert alone.weights_only == 2 * trained
    split = made(stack=stack, save={"file_bytes": "1MB"})
    assert sum(one.bytes for one in split.files if one.what == "weights") == 2 * COUNT
    assert len(split.files) > 2


def test_torchtune_writes_shards_where_training_goes_on() -> None:
    sections: dict[str, Any] = {
        "stack": {"framework": "torchtune", "versions": {"torch": "2.6.0", "torchtune": "0.6.1"}, "loss": None},
        "parallel": {"strategy": "fsdp2", "dp": 4},
    }
    assert made(**sections).format.name == "torchtune"
    assert made(**sections, save={"asynchronous": True}).format.name == "fsdp-sharded"


def test_litgpt_writes_one_file_and_merges_at_the_end() -> None:
    """As Fabric's save wrote it on a CPU (LitGPT 0.5.13): weights and states in one file, of LoRA its factors alone."""
    stack = {"framework": "litgpt", "versions": {"torch": "2.13.0", "litgpt": "0.5.13"}, "loss": None}
    full = made(stack=stack)
    assert files(full) == {
        "lit_model.pth": (2 * COUNT, 1), "lit_model.pth (optimizer)": (4 * COUNT, 1),
    }  # fmt: skip
    sft = of(plan_of(stack=stack, batch={"sequence": 16}, task="sft"))
    assert [(one.name, one.once) for one in sft.files][-1] == ("final/lit_model.pth", True)
    lora = made(stack=stack, adapter={**LORA, "dtype": "bf16"})
    trained = estimate(plan_of(stack=stack, adapter={**LORA, "dtype": "bf16"})).parameters.trainable
    assert files(lora) == {"lit_model.pth.lora": (2 * trained, 1), "lit_model.pth": (2 * COUNT, 1)}
    assert not any(one.what == "optimizer" for one in lora.files)


def test_zero_3_writes_each_rank_s_parts() -> None:
    sections: dict[str, Any] = {"precision": MIXED, "parallel": {"strategy": "zero3", "dp": 4, "options": {}}}
    found = made(**sections)
    size, count = files(found)["bf16_zero_pp_rank_*_mp_rank_00_optim_states.pt"]
    assert (count, len(found.files)) == (4, 1)
    assert size == pytest.approx(12 * COUNT / 4, rel=0.01)
    assert size >= 12 * COUNT / 4  # every part is padded
    assert found.rank_bytes == size
    sections["parallel"]["options"] = {"stage3_gather_16bit_weights_on_model_save": True}
    assert made(**sections).total == found.total + 2 * COUNT
    assert found.resume.name == "deepspeed"


def test_zero_2_writes_the_weights_once() -> None:
    found = made(precision=MIXED, parallel={"strategy": "zero2", "dp": 4}, stack={"framework": "deepspeed"})
    assert found.format.name == "deepspeed"
    assert files(found) == {
        "mp_rank_00_model_states.pt": (2 * COUNT, 1),
        "bf16_zero_pp_rank_*_mp_rank_00_optim_states.pt": (-(-12 * COUNT // 4), 4),
    }
    assert found.total == 14 * COUNT
    exported = made(
        precision=MIXED,
        parallel={"strategy": "zero2", "dp": 4},
        stack={"framework": "deepspeed"},
        save={"export": True},
    )
    assert exported.total == 16 * COUNT


def test_fsdp_whole_and_by_shards() -> None:
    precision = {"weights": "fp32", "gradients": "fp32", "compute": "bf16"}
    parallel: dict[str, Any] = {"strategy": "fsdp2", "dp": 4, "options": {}}
    shards = made(precision=precision, parallel=parallel)
    assert shards.total == 12 * COUNT
    assert [one.name for one in shards.files] == ["pytorch_model_fsdp_0/__*_0.distcp", "optimizer_0/__*_0.distcp"]
    assert [one.count for one in shards.files] == [4, 4]
    assert [one.bytes for one in shards.files] == pytest.approx([4 * COUNT / 4, 8 * COUNT / 4], rel=0.01)
    parallel["options"] = {"state_dict_type": "FULL_STATE_DICT"}
    whole = made(precision=precision, parallel=parallel)
    assert files(whole) == {
        "model.safetensors": (4 * COUNT, 1), "pytorch_model_fsdp.bin": (4 * COUNT, 1), "optimizer.bin": (8 * COUNT, 1),
    }  # fmt: skip
    assert (shards.resume.name, whole.resume.name) == ("fsdp-sharded", "fsdp-full")


def test_replicas_write_nothing_twice_and_share_the_writing() -> None:
    one = made(parallel={"strategy": "fsdp2", "dp": 4})
    both = made(parallel={"strategy": "hsdp", "dp": 8, "shard": 4})
    assert one.total == both.total == 6 * COUNT
    assert (one.files[0].count, both.files[0].count) == (4, 8)
    assert both.rank_bytes == pytest.approx(one.rank_bytes / 2, rel=0.05)


def test_megatron_s_formats() -> None:
    megatron = {
        "model_type": "megatron-gpt", "hidden_size": 256, "intermediate_size": 1024, "num_hidden_layers": 4,
        "num_attention_heads": 4, "vocab_size": 1024, "max_position_embeddings": 512,
    }  # fmt: skip
    sections: dict[str, Any] = {
        "precision": {**MIXED, "gradients": "fp32", "compute": "bf16", "autocast": False},
        "parallel": {"strategy": "megatron-distopt", "tp": 2, "pp": 2, "dp": 2},
        "stack": {"framework": "megatron", "versions": {"torch": "2.13.0", "megatron-core": "0.14.0"}, "loss": None},
        "optimizer": {"implementation": None},
        "batch": {"accumulation": 2, "sequence": 64},
    }
    answer = estimate(plan_of(megatron, **sections))
    found, count = beside(answer).checkpoint, answer.parameters.total
    assert found.format.name == "megatron-dist"
    assert found.total == 14 * count
    assert (found.files[0].count, found.files[0].each) == (16, 2)
    assert found.rank_bytes == pytest.approx(14 * count / 8, rel=0.001)
    torch = beside(estimate(plan_of(megatron, **sections, save={"format": "megatron-torch"}))).checkpoint
    assert torch.total == 14 * count
    assert {one.name: one.count for one in torch.files} == {
        "mp_rank_*/model_optim_rng.pt": 4, "mp_rank_*/distrib_optim.pt": 4,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("save", "kept"), [({}, 1), ({"limit": 3}, 4), ({"saves": 10}, 10), ({"limit": 3, "saves": 2}, 2)]
)
def test_one_more_than_the_limit_is_there_while_it_is_written(save: dict[str, int], kept: int) -> None:
    found = made(save=save)
    assert found.kept == kept
    assert found.disk == kept * found.total


def test_a_full_disk_is_named() -> None:
    room = 3 * 6 * COUNT
    plan = plan_of(batch={"sequence": 16}, save={"limit": 3, "disk": room, "bandwidth": "1MB"})
    answer = estimate(plan)
    assert answer.verdict.outcome == "does-not-fit"
    assert any(reason.startswith("disk, 4 kept: even the low end") for reason in answer.verdict.reasons)
    assert beside(answer).checkpoint.seconds == pytest.approx(6 * COUNT / 1e6)
