"""A plan's settings as Megatron-Core wraps its chunks, and the ranges of one rank."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.answer.layout import layout
from trainledger.answer.layout_megatron import Place, megatron, wrap_of
from trainledger.base.problems import InputError
from trainledger.facts.dtypes import BF16, FP32
from trainledger.lines.param_buffers import Parameter
from trainledger.plan.read import read_plan
from trainledger.plan.resolve import resolve
from trainledger.plan.schema import Plan

CHUNK = (
    Parameter("embedding.word_embeddings.weight", 1000, BF16),
    Parameter("decoder.layers.0.mlp.router.weight", 64, FP32),
    Parameter("decoder.layers.0.mlp.experts.linear_fc1.weight0", 300, BF16, expert=True),
    Parameter("decoder.final_layernorm.weight", 10, BF16),
)


def plan_of(strategy: str = "megatron-distopt", **parallel: Any) -> Plan:
    versions = {"megatron-core": parallel.pop("release", "core_r0.14.0")}
    precision = {"weights": "bf16", "compute": "bf16", "gradients": parallel.pop("gradients", "fp32")}
    data = {
        "model": {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
                  "intermediate_size": 64, "vocab_size": 100},
        "precision": precision,
        "batch": {"micro_batch": 1, "sequence": 16},
        "parallel": {"strategy": strategy, **parallel},
        "stack": {"framework": "megatron", "versions": versions},
    }  # fmt: skip
    return resolve(read_plan(data))[0]


def test_degrees_become_ranks_that_shard() -> None:
    wrap = wrap_of(plan_of(world=64, tp=2, cp=2, ep=4))
    assert (wrap.ranks, wrap.expert_ranks) == (32, 8)
    assert wrap_of(plan_of(world=64, tp=2, ep=4, etp=1)).expert_ranks == 16
    assert (wrap.release, wrap.gradients, wrap.distributed) == ("0.14.0", FP32, True)
    assert wrap_of(plan_of(world=8, gradients="bf16")).gradients is None
    assert not wrap_of(plan_of("megatron-ddp", world=8)).distributed


def test_options_become_buckets() -> None:
    options = {"overlap_grad_reduce": True}
    assert wrap_of(plan_of(world=8)).bucket is None
    assert wrap_of(plan_of(world=8, options=options)).bucket == 40_000_000
    assert wrap_of(plan_of(world=8, options={**options, "ddp_bucket_size": 500})).bucket == 500
    assert wrap_of(plan_of(world=8, options={**options, "ddp_num_buckets": 4}), elements=1000).bucket == 250
    assert wrap_of(plan_of(world=8, options=options), stage=1).bucket is None
    assert wrap_of(plan_of(world=8, options=options), chunk=1).bucket is None
    more = {"num_distributed_optimizer_instances": 2, "ddp_pad_buckets_for_high_nccl_busbw": True}
    wrap = wrap_of(plan_of(world=8, options=more))
    assert (wrap.instances, wrap.fast, wrap.shards(expert=False)) == (2, True, 4)


def test_every_parameter_of_every_chunk_in_the_order_of_its_buffer() -> None:
    found = megatron(plan_of(world=4, ep=2), (CHUNK, CHUNK[3:]), Place(3, dense=3, expert=1))
    assert [one.name for one in found.containers] == [
        "chunk 0: bf16 weights, fp32 gradients",
        "chunk 0: fp32 weights, fp32 gradients",
        "chunk 0: bf16 weights, fp32 gradients, experts",
        "chunk 1: bf16 weights, fp32 gradients",
    ]
    assert [(one.ranks, one.rank) for one in found.containers] == [(4, 3), (4, 3), (2, 1), (4, 3)]
    assert [one.owned * one.ranks for one in found.containers] == [one.elements for one in found.containers]
    first = found.entries[0]
    assert (first.name, first.placed, first.held) == ("decoder.final_layernorm.weight", (0, 10), None)
    words = found.entries[1]
    assert words.held is not None
    assert (words.placed, words.held.world, words.held.local, words.held.within) == (
        (64, 1064), (864, 1064), (0, 200), (800, 1000)
    )  # fmt: skip


def test_without_the_distributed_optimizer_a_rank_has_all() -> None:
    found = megatron(plan_of("megatron-ddp", world=4), (CHUNK,), Place(2, dense=2))
    assert all(one.held is not None and one.held.within == (0, one.elements) for one in found.entries)
    assert {one.weight_bytes for one in found.containers} == {0}
    assert [one.owned for one in found.containers] == [one.elements for one in found.containers]


def test_ranks_of_another_instance_own_the_same() -> None:
    plan = plan_of(world=4, options={"num_distributed_optimizer_instances": 2})
    first, second = (megatron(plan, (CHUNK[:1],), Place(rank, dense=rank)) for rank in (1, 3))
    assert first.entries == second.entries


@pytest.mark.parametrize(
    ("plan", "path"),
    [
        (plan_of("megatron-fsdp", world=4), "parallel.strategy"),
        (plan_of(world=4, options={"num_distributed_optimizer_instances": 3}), "parallel.options"),
        (plan_of(world=4, release="0.11.0", options={"ddp_pad_buckets_for_high_nccl_busbw": True}), "parallel.options"),
    ],
)
def test_what_megatron_refuses_is_wrong_input(plan: Plan, path: str) -> None:
    with pytest.raises(InputError) as caught:
        megatron(plan, (CHUNK,), Place(0))
    assert [problem.path for problem in caught.value.problems] == [path]


def test_an_embedding_that_old_releases_cut_badly_is_wrong_input() -> None:
    chunk = (
        Parameter("embedding.word_embeddings.weight", 1000, BF16, shared_embedding=True),
        Parameter("decoder.layers.0.self_attention.linear_proj.weight", 330, BF16),
        Parameter("decoder.layers.0.mlp.linear_fc1.weight", 100, BF16),
        Parameter("decoder.final_layernorm.weight", 10, BF16),
    )
    with pytest.raises(InputError, match="two buckets"):
        megatron(plan_of(world=4, release="0.12.0"), (chunk,), Place(3, dense=3))
    assert megatron(plan_of(world=4), (chunk,), Place(3, dense=3)).entries


def gpt(tied: bool = True, **parallel: Any) -> Plan:
    data = {
        "model": {"model_type": "megatron-gpt", "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4,
                  "num_key_value_heads": 4, "head_dim": 16, "intermediate_size": 128, "vocab_size": 256,
                  "tie_word_embeddings": tied, "max_position_embeddings": 32,
                  "position_embedding_type": "learned_absolute", "normalization": "LayerNorm", "hidden_act": "gelu",
                  "gated_linear_unit": False, "add_bias_linear": True, "qk_layernorm": False, "hidden_dropout": 0.0,
                  "attention_dropout": 0.0},
        "task": "pretrain",
        "precision": {"weights": "bf16", "compute": "bf16", "gradients": "fp32", "master": "fp32"},
        "batch": {"micro_batch": 1, "sequence": 32, "accumulation": 4},
        "parallel": {"strategy": "megatron-distopt", **parallel},
        "stack": {"framework": "megatron", "versions": {"megatron-core": "0.19.2"}, "loss": "vocab-parallel",
                  "attention": "flash"},
    }  # fmt: skip
    return resolve(read_plan(data))[0]


def test_a_plans_parameters_lie_in_the_reverse_of_their_order() -> None:
    names = [one.name for one in layout(gpt(world=2), 0).entries]
    assert names[-2:] == ["embedding.position_embeddings.weight", "embedding.word_embeddings.weight"]
    assert names[:2] == ["decoder.final_layernorm.bias", "decoder.final_layernorm.weight"]
    layer = [name.removeprefix("decoder.layers.0.") for name in names if name.startswith("decoder.layers.0.")]
    assert [name for name in reversed(layer) if name.endswith(".weight")] == [
        "self_attention.linear_proj.weight", "self_attention.linear_qkv.weight", "mlp.linear_fc1.weight",
        "mlp.linear_fc2.weight",
    ]  # fmt: skip


@pytest.mark.parametrize(("parallel", "ranks"), [({"world": 4}, (0, 1, 2, 3)), ({"world": 8, "tp": 2}, (1, 3, 5, 7))])
def test_the_data_parallel_ranks_of_a_plan_own_everything_once(
    parallel: dict[str, int], ranks: tuple[int, ...]
) -> None:
    found = [layout(gpt(**parallel), rank) for rank in ranks]
    assert [one.containers[0].rank for one in found] == [0, 1, 2, 3]
    for same in zip(*(one.entries for one in found), strict=True):
        spans = [one.held.within for one in same if one.held]
        assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
        assert spans[-1].end == same[0].elements


def test_context_parallel_ranks_own_parts_too() -> None:
    found = [layout(gpt(world=4, cp=2), rank).containers[0] for rank in range(4)]
    assert [(one.ranks, one.rank) for one in found] == [(4, 0), (4, 1), (4, 2), (4, 3)]


def test_a_tied_table_has_a_bucket_on_both_stages_that_hold_it() -> None:
    first, last = (layout(gpt(world=4, pp=2), rank) for rank in (0, 3))
    for found, name in ((first, "embedding.word_embeddings.weight"), (last, "output_layer.weight")):
        alone = [one for one in found.entries if one.name == name]
        assert [one.bucket for one in found.entries].count(alone[0].bucket) == 1
    assert first.notes == last.notes != ()
    assert "decoder.layers.1.mlp.linear_fc1.layer_norm_weight" in {
        one.name for one in last.entries
    }  # of the chunk's two
    (single,) = layout(gpt(tied=False, world=4, pp=2), 0).containers[0].buckets
    assert single.start == 0


def test_every_chunk_of_a_stage_has_buffers() -> None:
    found = layout(gpt(world=2, pp=2, vpp=2), 1)
    assert [one.name.partition(":")[0] for one in found.containers] == ["chunk 0", "chunk 1"]
