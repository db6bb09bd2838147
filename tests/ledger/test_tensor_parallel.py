"""Models under PyTorch's tensor parallelism: this rank's part, and the collectives around its layers."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.ledger.rank import Ledger
from trainledger.ledger.tensor_parallel import spread
from trainledger.lines.line import Account
from trainledger.model.build import model_of
from trainledger.model.operations_parallel import Copied, Gathered, Summed
from trainledger.model.program import Attention, Model
from trainledger.model.valued import valued

WIDE = {**LLAMA, "num_attention_heads": 8, "num_key_value_heads": 4}


def part(loss: str = "full-fp32", **parallel: Any) -> Model:
    plan = plan_of(WIDE, parallel={"tp": 4, **parallel}, stack={"loss": loss})
    return spread(model_of(plan), plan)


def named(model: Model, kind: type) -> list[str]:
    ops = (*model.prologue, *model.blocks[0].ops, *model.head.ops)
    return [op.name for op in ops if isinstance(op.spec, kind)]


def test_one_rank_is_the_model_itself() -> None:
    plan = plan_of(WIDE)
    model = model_of(plan)
    assert spread(model, plan) is model


def test_heads_and_widths_are_divided_and_norms_are_not() -> None:
    model = part()
    attention = next(op.spec for op in model.blocks[0].ops if isinstance(op.spec, Attention))
    assert (attention.heads, attention.kv_heads) == (2, 1)
    sizes = {weight.name: weight.flat[0].size for weight in model.blocks[0].weights}
    assert sizes["mlp.gate_proj.weight"] == 640 // 4
    assert sizes["input_layernorm.weight"] == 256
    assert model.embeddings[0].dims[0].size == model.head.weights[-1].dims[0].size == 1024 // 4


def test_each_layer_takes_its_input_by_itself_or_a_module_for_all_of_its_own() -> None:
    alone, whole = part(), part(sp=True)
    assert len(named(alone, Copied)) == 6  # three of attention, two of the feed-forward, the head
    assert named(whole, Gathered)[:2] == ["self_attn.q_proj", "mlp.gate_proj"]
    assert named(whole, Summed) == ["model.embed_tokens", "self_attn.o_proj", "mlp.down_proj"]


def test_colossal_adds_up_inside_its_layers_and_gathers_logits_alone() -> None:
    plan = plan_of(WIDE, parallel={"tp": 4}, stack={"framework": "colossalai", "versions": {}})
    model = spread(model_of(plan), plan)
    assert named(model, Copied) == named(model, Summed) == []
    assert named(model, Gathered) == ["lm_head"]


def test_a_head_of_one_number_is_not_gathered() -> None:
    plan = plan_of(WIDE, parallel={"tp": 4}, stack={"framework": "colossalai", "versions": {}})
    assert named(spread(valued(model_of(plan)), plan), Gathered) == []


@pytest.mark.parametrize(("loss", "gathered"), [("full-fp32", 1024), ("vocab-parallel", 256)])
def test_logits_are_whole_unless_the_loss_reads_them_spread(loss: str, gathered: int) -> None:
    plan = plan_of(WIDE, parallel={"tp": 4, "sp": True}, stack={"loss": loss})
    ledger = estimate(plan).ledger
    words = {line.dims[-1].size for line in ledger.lines if line.name == "loss: log-probabilities"}
    assert words == {gathered}


def test_the_sequence_is_spread_between_layers_and_whole_inside() -> None:
    plan = plan_of(WIDE, parallel={"tp": 4, "sp": True}, stack={"loss": "vocab-parallel"})
    lines = [line for line in estimate(plan).ledger.lines if line.account is Account.ACTIVATIONS]
    tokens = {line.name: line.dims[1].size for line in lines if len(line.dims) > 1}
    assert tokens["hidden states"] == 512 // 4
    assert tokens["model.layers.*.mlp.gate_proj: output"] == 512


WORDS = (1024, 256)  # of the table of words


def gradients(ledger: Ledger) -> dict[str, tuple[int, ...]]:
    """Sizes of the table's gradients, by what they are."""
    found = (line for line in ledger.lines if "embed_tokens.weight" in line.name and line.account in REDUCED)
    return {line.name: tuple(axis.size for axis in line.dims) for line in found}


REDUCED = (Account.GRADIENTS, Account.REDUCTION, Account.BACKWARD)
FSDP: dict[str, Any] = {"strategy": "fsdp2", "world": 8, "dp": 2, "tp": 4, "sp": True}


def test_the_gradient_of_a_table_spread_by_words_has_all_words_and_is_cut_before_it_is_reduced() -> None:
    made = estimate(plan_of(WIDE, parallel=FSDP)).ledger
    assert gradients(made) == {
        "model.embed_tokens.weight": WORDS,
        "gradient of model.embed_tokens.weight, this rank's rows": (1024 // 4, 256),
    }


def test_before_a_release_all_words_are_reduced() -> None:
    """Two ranks of FSDP2, of which each has half of the table's words on one of four tensor-parallel ranks, and half of
    the head's; what was reduced stays as their gradient."""
    table, head, norm = 1024 * 256, 256 * 256, 256
    for torch, words in (("2.5", table), ("2.6", table // 4)):
        ledger = estimate(plan_of(WIDE, parallel=FSDP, stack=before(torch))).ledger
        lines = {line.name: line.dims[0].size for line in ledger.lines}
        assert lines["gradients of the root to reduce"] == words + head + norm
        assert lines["gradients of the root, this rank's part"] == (words + head + norm) // 2
        assert ("gradient of model.embed_tokens.weight, this rank's rows" in lines) is (torch == "2.6")


def before(torch: str) -> dict[str, Any]:
    return {"versions": {"torch": torch, "transformers": "4.46"}}


def test_without_shards_it_stays_whole() -> None:
    made = estimate(plan_of(WIDE, parallel={"tp": 4, "sp": True})).ledger
    assert gradients(made) == {"model.embed_tokens.weight": WORDS}


def test_it_waits_whole_for_further_micro_batches() -> None:
    precision = {"weights": "fp32", "gradients": "fp32", "reduce": "fp32"}
    stack = {"framework": "torchtitan", "versions": {"torchtitan": "9dec370"}, "loss": "vocab-parallel"}
    parallel = {"strategy": "fsdp2", "world": 8, "dp": 2, "tp": 2, "pp": 2, "sp": True, "schedule": "1f1b"}
    batch = {"accumulation": 4}
    plan = plan_of(LLAMA, precision=precision, batch=batch, parallel=parallel, stack=stack)
    assert gradients(estimate(plan, 0).ledger)["model.embed_tokens.weight (not reduced yet)"] == WORDS


def test_colossals_own_table_has_a_gradient_of_its_own_words() -> None:
    plan = plan_of(WIDE, parallel={"tp": 4}, stack={"framework": "colossalai", "versions": {}})
    assert spread(model_of(plan), plan).embeddings[0].rows == 0


def test_pytorch_makes_it_whole() -> None:
    """What PyTorch's own styles leave of the gradient of a table on one of four ranks, and what FSDP2 makes of it."""
    torch = pytest.importorskip("torch")
    import torch.distributed as dist
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import RowwiseParallel, parallelize_module
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=4, store=FakeStore())
    try:
        mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (4,))
        table = torch.nn.Embedding(*WORDS)
        style = RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))
        made = parallelize_module(torch.nn.Sequential(table), mesh, {"0": style})
        made(torch.zeros(1, 16, dtype=torch.long)).sum().backward()
        gradient = table.weight.grad
        assert tuple(gradient.to_local().shape) == WORDS
        cut = gradient.redistribute(placements=table.weight.placements).to_local()
        assert tuple(cut.shape) == (1024 // 4, 256)
        assert cut.untyped_storage().nbytes() == gradient.to_local().untyped_storage().nbytes() // 4
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize(("recipe", "sent"), [("tensorwise", "fp8"), ("rowwise", "bf16")])
def test_inputs_and_gradients_that_are_scaled_by_tensor_are_exchanged_in_8_bits(recipe: str, sent: str) -> None:
    stack = {
        "framework": "torchtitan", "versions": {"torchtitan": "2025-02-14"}, "compile": True, "loss": "vocab-parallel",
        "recompute": {"kind": "full"},
    }  # fmt: skip
    precision = {"compute": "fp8", "fp8": {"recipe": recipe}}
    made = estimate(plan_of(WIDE, parallel=FSDP, stack=stack, precision=precision)).ledger
    found = {line.name.removeprefix("model.layers.*."): line for line in made.lines if len(line.dims) > 1}
    assert found["mlp.gate_proj: gathered"].dtype.name == sent
    assert found["gradient of mlp.down_proj: by parts of the sequence"].dtype.name == sent
    assert found["mlp.gate_proj: gradient by parts of the sequence"].dtype.name == "bf16"  # of several products
    assert found["lm_head: gathered"].dtype.name == "bf16"
    casts = {name for name in found if name.endswith("down_proj: gradient in 8 bits")}
    assert {found[name].dims[1].size for name in casts} == {512 // 4 if recipe == "tensorwise" else 512}
