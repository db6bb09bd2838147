"""Where parameters lie on one rank: as PyTorch's FSDP has them, and what holds of every strategy."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainledger.answer.layout import layout
from trainledger.answer.places import Layout
from trainledger.base.problems import InputError
from trainledger.plan.read import read_plan
from trainledger.plan.resolve import resolve

DATA = Path(__file__).parent.parent / "data" / "fsdp1_pieces.jsonl"
ROWS = [json.loads(line) for line in DATA.read_text(encoding="utf-8").splitlines()]
LLAMA = {
    "model_type": "llama", "hidden_size": 24, "intermediate_size": 50, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 6, "vocab_size": 101, "tie_word_embeddings": False,
}  # fmt: skip


def on_rank(rank: int, model: dict[str, Any] = LLAMA, world: int = 3, **keys: Any) -> Layout:
    parallel = {"world": world, **keys.pop("parallel", {})}
    data = {
        "model": model,
        "precision": {"weights": "bf16", "compute": "bf16"},
        "batch": {"micro_batch": 1, "sequence": 16},
        "parallel": parallel,
        **keys,
    }
    return layout(resolve(read_plan(data))[0], rank)


@pytest.mark.parametrize(
    "row",
    ROWS,
    ids=lambda row: "-".join(
        map(str, (row["model"]["model_type"], row["named"], row["world"], *row["options"].values()))
    ),
)
def test_fsdp1_has_the_pieces_that_torch_has(row: dict[str, Any]) -> None:
    parallel = {"strategy": "fsdp1", "options": {"use_orig_params": row["named"], **row["options"]}}
    precision = {"weights": "fp32", "compute": "fp32"}
    found = on_rank(row["rank"], row["model"], row["world"], parallel=parallel, precision=precision)
    pieces = {one.name: [one.held.local.start, *one.held.within] if one.held else None for one in found.entries}
    assert pieces == row["pieces"]


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3", "fsdp1", "fsdp2"])
@pytest.mark.parametrize("world", [1, 3, 8])
def test_the_ranks_have_every_element_once(strategy: str, world: int) -> None:
    ranks = [on_rank(rank, world=world, parallel={"strategy": strategy}) for rank in range(world)]
    for same in zip(*(found.entries for found in ranks), strict=True):
        assert len({(one.name, one.container, one.placed) for one in same}) == 1
        spans = [one.held.within for one in same if one.held]
        assert [span.start for span in spans] == [0, *(span.end for span in spans[:-1])]
        assert spans[-1].end == same[0].elements
        assert all(one.held.world.size == one.held.local.size == one.held.within.size for one in same if one.held)
    owned = [sum(one.owned for one in found.containers) for found in ranks]
    held = [sum(one.held.world.size for one in found.entries if one.held) for found in ranks]
    assert all(have <= room for have, room in zip(held, owned, strict=True))
    assert sum(held) == sum(one.elements for one in ranks[0].entries)


def test_fsdp2_spreads_rows_and_zero3_elements() -> None:
    rows = on_rank(2, parallel={"strategy": "fsdp2"}).only("embed_tokens.weight").entries[0]
    assert rows.held is not None
    assert rows.held.within == (68 * 24, 101 * 24)  # 101 rows of 24 over three ranks: 34, 34, 33
    parts = on_rank(2, parallel={"strategy": "zero3"}).only("embed_tokens.weight").entries[0]
    assert parts.held is not None
    assert parts.held.within == (2 * 808, 101 * 24)


def test_a_rank_of_a_replica_stands_in_its_shard_group() -> None:
    first, second = (on_rank(rank, world=4, parallel={"strategy": "hsdp", "shard": 2}).entries for rank in (1, 3))
    assert first == second


@pytest.mark.parametrize("strategy", ["none", "ddp"])
def test_whole_parameters_are_tensors_of_their_own(strategy: str) -> None:
    found = on_rank(0, world=1 if strategy == "none" else 2, parallel={"strategy": strategy})
    assert found.containers == ()
    assert all(one.held is not None and one.held.within == (0, one.elements) for one in found.entries)


def test_what_is_frozen_is_not_listed() -> None:
    found = on_rank(0, parallel={"strategy": "fsdp2"}, trainable=["lm_head"])
    assert [one.name for one in found.entries] == ["lm_head.weight"]


@pytest.mark.parametrize(
    ("keys", "path"),
    [
        ({"parallel": {"strategy": "megatron-fsdp"}, "stack": {"framework": "megatron"}}, "parallel.strategy"),
        ({"parallel": {"strategy": "zero1"}, "adapter": {"kind": "lora", "r": 4}}, "adapter.kind"),
        (
            {"parallel": {"strategy": "fsdp2"}, "quantization": {"kind": "nf4"}, "adapter": {"kind": "lora", "r": 4}},
            "quantization.kind",
        ),
        (
            {
                "parallel": {
                    "strategy": "fsdp1",
                    "options": {"auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": 9},
                }
            },
            "parallel.options.auto_wrap_policy",
        ),
        ({"parallel": {"strategy": "zero2"}, "stack": {"framework": "colossalai"}}, "stack.framework"),
        ({"parallel": {"strategy": "fsdp2", "tp": 2, "dp": 2, "world": 4}}, "parallel.tp"),
    ],
)
def test_what_is_not_known_is_refused_by_name(keys: dict[str, Any], path: str) -> None:
    with pytest.raises(InputError) as caught:
        on_rank(0, **keys)
    assert path in [problem.path for problem in caught.value.problems]


@pytest.mark.parametrize("rank", [-1, 3])
def test_a_rank_that_is_not_there(rank: int) -> None:
    with pytest.raises(InputError, match="from 0 to 2"):
        on_rank(rank, parallel={"strategy": "fsdp2"})


def test_one_name_or_a_part_of_it() -> None:
    found = on_rank(0, parallel={"strategy": "fsdp1"})
    assert [one.name for one in found.only("lm_head.weight").entries] == ["lm_head.weight"]
    assert [one.name for one in found.only("lm_head.weight").containers] == ["the root"]
    assert len(found.only("Q_PROJ").entries) == 2
    with pytest.raises(InputError, match=r"Did you mean lm_head\.weight"):
        found.only("lm_haed.weight")
    with pytest.raises(InputError):
        found.only("")
