"""Which layers every pipeline rank and chunk holds, and what cannot be split so."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.base.problems import InputError
from trainledger.plan.own_stages import LightEnds, Weighted
from trainledger.plan.read import read_plan
from trainledger.plan.schema import Plan
from trainledger.plan.stages import Chunk, Split, chunks_of, schedule_of, split_of, stage_of, stage_problems, stages


def plan_of(framework: str = "megatron", **parallel: Any) -> Plan:
    return read_plan(
        {
            "model": {"model_type": "llama"}, "batch": {"micro_batch": 1, "sequence": 8}, "parallel": parallel,
            "stack": {"framework": framework},
        }
    )  # fmt: skip


def held(split: Split) -> list[list[tuple[int, int]]]:
    """(first, layers) of every chunk, by rank."""
    rows: list[list[tuple[int, int]]] = [[] for _ in range(split.ranks)]
    for chunk in stages(split):
        rows[chunk.rank].append((chunk.first, chunk.layers))
    return rows


def test_chunks_lie_round_after_round() -> None:
    assert held(Split(8, 2, 2)) == [[(0, 2), (4, 2)], [(2, 2), (6, 2)]]  # the example of Megatron-Core's comments
    assert held(Split(8, 2, 4)) == [[(0, 1), (2, 1), (4, 1), (6, 1)], [(1, 1), (3, 1), (5, 1), (7, 1)]]


def test_chunks_lie_there_and_back() -> None:
    assert held(Split(8, 2, 2, shape="vee")) == [[(0, 2), (6, 2)], [(2, 2), (4, 2)]]
    assert [stage_of(Split(8, 2, 2, shape="vee"), 1, chunk) for chunk in (0, 1)] == [1, 2]


def test_dualpipe_holds_every_layer_twice() -> None:
    split = Split(8, 4, 2, mtp=1, shape="both")
    assert held(split) == [[(0, 2), (6, 2)], [(2, 2), (4, 2)], [(4, 2), (2, 2)], [(6, 2), (0, 2)]]
    assert [(one.rank, one.chunk) for one in stages(split) if one.embedding] == [(0, 0), (3, 1)]
    assert [(one.rank, one.chunk, one.mtp) for one in stages(split) if one.loss] == [(3, 0, 1), (0, 1, 1)]


def test_embedding_and_loss_may_count_as_a_layer() -> None:
    assert held(Split(6, 2, 2, with_embedding=True, with_loss=True)) == [[(0, 1), (3, 2)], [(1, 2), (5, 1)]]
    assert held(Split(7, 4, with_embedding=True)) == [[(0, 1)], [(1, 2)], [(3, 2)], [(5, 2)]]


def test_the_first_and_the_last_rank_may_have_layers_of_their_own() -> None:
    assert held(Split(12, 4, first=2, last=2)) == [[(0, 2)], [(2, 4)], [(6, 4)], [(10, 2)]]
    assert held(Split(16, 4, 2, first=2, last=2)) == [
        [(0, 1), (8, 1)], [(1, 3), (9, 3)], [(4, 3), (12, 3)], [(7, 1), (15, 1)],
    ]  # fmt: skip


def test_a_layout_places_every_layer() -> None:
    placed = stages(Split(15, 2, 4, mtp=1, layout="Et*3|(tt|)*6mL"))
    assert placed[0] == Chunk(0, 0, 0, 3, True, 0, False)
    assert placed[-2:] == (Chunk(0, 3, 13, 2, False, 0, False), Chunk(1, 3, 15, 0, False, 1, True))
    apart = stages(Split(4, 2, 2, mtp=1, layout="Et|t|ttm|L"))
    assert [(one.rank, one.mtp, one.loss) for one in apart if one.mtp or one.loss] == [(0, 1, False), (1, 0, True)]


def test_torchtitan_counts_embedding_and_head_as_layers() -> None:
    titan = held(Split(126, 8, 2, own=Weighted(1, 1)))  # Llama 3.1 405B: 16 stages of 8
    assert [sum(layers for _, layers in rank) for rank in titan] == [15, 16, 16, 16, 16, 16, 16, 15]
    assert held(Split(3, 2, own=Weighted(2, 2))) == [[(0, 2)], [(2, 1)]]  # the example of its docstring: 7 over 2
    assert held(Split(32, 1, own=Weighted(1, 1))) == [[(0, 32)]]


def points_of_2024(layers: int, count: int) -> list[int]:
    """Where torchtitan's first rule cut, written again from what it says: stages of equal length, the inner ones one
    longer while there are layers over."""
    at, over, points = 0, layers % count, []
    for stage in range(count - 1):
        longer = stage > 0 and over > 0
        at, over = at + layers // count + longer, over - longer
        points.append(at)
    return points


@pytest.mark.parametrize(
    ("layers", "ranks", "chunks"), [(32, 4, 1), (35, 4, 1), (126, 8, 2), (7, 4, 1), (27, 2, 4), (9, 2, 1)]
)
def test_torchtitan_of_2024_counted_layers_alone(layers: int, ranks: int, chunks: int) -> None:
    plan = read_plan(
        {
            "model": {"model_type": "llama"}, "batch": {"micro_batch": 1, "sequence": 8},
            "stack": {"framework": "torchtitan", "versions": {"torchtitan": "2024-12-01"}},
            "parallel": {"pp": ranks, "vpp": chunks},
        }
    )  # fmt: skip
    split = split_of(plan, layers)
    placed = sorted(stages(split), key=lambda one: stage_of(split, one.rank, one.chunk))
    assert [one.first for one in placed[1:]] == points_of_2024(layers, ranks * chunks)
    assert sum(one.layers for one in placed) == layers


def test_torchtitan_names_its_stages() -> None:
    points = {"pipeline_parallel_split_points": ["layers.0", "layers.5", "layers.9"]}
    plan = plan_of("torchtitan", pp=2, schedule="interleaved", options=points)
    assert chunks_of(plan) == 2
    assert held(split_of(plan, 12)) == [[(0, 0), (5, 4)], [(0, 5), (9, 3)]]
    parts = [["tok_embeddings", "layers.0"], ["layers.1", "layers.2"], ["layers.3"], ["norm", "output"]]
    plan = plan_of("torchtitan", pp=4, options={"module_fqns_per_model_part": parts})
    assert held(split_of(plan, 4)) == [[(0, 1)], [(1, 2)], [(3, 1)], [(4, 0)]]
    assert held(split_of(plan_of("torchtitan", options=points), 12)) == [[(0, 12)]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pipeline_parallel_split_points": ["layers.5", "layers.3", "layers.7"]}, "no such split of 8 layers"),
        ({"pipeline_parallel_split_points": ["layers.3", "norm", "layers.7"]}, "no such split of 8 layers"),
        ({"pipeline_parallel_split_points": ["layers.3"]}, "2 stages over pp 4 with vpp 1; 4 are needed"),
        ({"module_fqns_per_model_part": [["tok_embeddings"], ["norm", "output"]]}, "no such split of 8 layers"),
        ({"module_fqns_per_model_part": ["tok_embeddings"]}, "no such split of 8 layers"),
    ],
)
def test_stages_that_are_named_must_hold_every_layer(options: dict[str, Any], message: str) -> None:
    found = stage_problems(split_of(plan_of("torchtitan", pp=4, options=options), 8))
    assert [message in f"{one}" for one in found] == [True]


def test_pithtrain_fills_inner_stages_first() -> None:
    assert held(Split(27, 2, 2, own=LightEnds(0), shape="vee")) == [[(0, 7), (21, 6)], [(7, 7), (14, 7)]]
    assert held(Split(3, 2, own=LightEnds(0))) == [[(0, 2)], [(2, 1)]]


@given(st.integers(1, 60), st.integers(1, 8), st.integers(1, 3), st.integers(0, 2), st.booleans(), st.booleans())
def test_every_layer_is_held_once_or_the_split_is_refused(
    layers: int, ranks: int, chunks: int, mtp: int, embedding: bool, loss: bool
) -> None:
    for more in ({"with_embedding": embedding, "with_loss": loss}, {"own": Weighted(1, 1)}, {"own": LightEnds(-1)}):
        split = Split(layers, ranks, chunks, mtp, **more)  # type: ignore[arg-type]
        if stage_problems(split):
            with pytest.raises(InputError):
                stages(split)
            continue
        placed = sorted(stages(split), key=lambda one: stage_of(split, one.rank, one.chunk))
        assert [at for one in placed for at in range(one.first, one.first + one.layers)] == list(range(layers))
        assert all(one.layers >= 0 for one in placed)
        assert [one.embedding for one in placed] == [True] + [False] * (len(placed) - 1)
        assert [one.loss for one in placed] == [False] * (len(placed) - 1) + [True]
        assert sum(one.mtp for one in placed) == mtp


@pytest.mark.parametrize(
    ("split", "messages"),
    [
        (Split(30, 4), ["parallel.pp: found 4 for 30 layers; a divisor of 30 is needed. The nearest that can is 3."]),
        (Split(32, 4, 3), ["parallel.vpp: found 3 for 32 layers over pp 4; a divisor of the 8 layers of a rank"]),
        (Split(32, 4, with_loss=True), ["parallel.pp: found 4 for 33 layers with embedding or loss; a divisor of 33"]),
        (
            Split(30, 4, first=5),
            ["found 5 of 30 layers over pp 4; the other ranks' layers must be spread evenly over 3 ranks x 1 chunks. "
             "The nearest that can is 6."],
        ),
        (Split(4, 2, first=4, last=2), ["first_pipeline_num_layers: found 4", "last_pipeline_num_layers: found 2"]),
        (Split(4, 2, 2, first=2, last=2), ["parallel.vpp: found 2 with decoder_first_pipeline_num_layers and"]),
        (Split(18, 4, 2, first=3, last=3), ["found 3 of 18 layers over pp 4; a multiple of parallel.vpp"] * 2),
        (Split(12, 4, first=3, with_loss=True), ["account_for_loss_in_pipeline_split: given beside decoder_first"]),
        (Split(2, 2, layout="Et|tL", first=1), ["decoder_first_pipeline_num_layers: given beside pipeline_model"]),
        (Split(4, 2, 1, layout="Et|t|t|tL"), ["parallel.vpp: 1 with a layout of 4 stages; the layout's stages over"]),
        (Split(4, 2, 1, layout="E*t"), ['layout: position 2: "*"']),
        (Split(2, 8, own=Weighted(1, 1)), ["parallel.pp: 8 stages for 2 layers, embedding as 1, head as 1"]),
        (Split(10, 2, 2, own=Weighted(4, 1)), ["parallel.vpp: 4 stages for 10 layers, embedding as 4, head as 1"]),
    ],
)  # fmt: skip
def test_a_split_that_cannot_be_is_refused(split: Split, messages: list[str]) -> None:
    found = [str(problem) for problem in stage_problems(split)]
    assert len(found) == len(messages)
    for text, message in zip(found, messages, strict=True):
        assert message in text


def test_the_plans_schedule_and_chunks() -> None:
    assert [schedule_of(plan_of(pp=4, vpp=vpp)) for vpp in (1, 2)] == ["1f1b", "interleaved"]
    assert schedule_of(plan_of(pp=4, schedule="gpipe")) == "gpipe"
    assert [chunks_of(plan_of(pp=4, schedule=name)) for name in ("zb-v", "dualpipe", "1f1b")] == [2, 2, 1]
    layout = {"pipeline_model_parallel_layout": "Et|t|t|tL"}
    assert chunks_of(plan_of(pp=2, options=layout)) == 2
    assert schedule_of(plan_of(pp=2, options=layout)) == "interleaved"
    assert chunks_of(plan_of(pp=2, options={"pipeline_model_parallel_layout": "Ex|L"})) == 1
    assert chunks_of(plan_of(pp=2, vpp=3, options=layout)) == 3


def test_the_plans_split() -> None:
    options = {"decoder_first_pipeline_num_layers": 2, "decoder_last_pipeline_num_layers": 2}
    assert split_of(plan_of(pp=4, options=options), 12) == Split(12, 4, first=2, last=2)
    counted = {"account_for_embedding_in_pipeline_split": True, "account_for_loss_in_pipeline_split": True}
    assert split_of(plan_of(pp=4, vpp=2, options=counted), 14, 1) == Split(
        14, 4, 2, 1, with_embedding=True, with_loss=True
    )
    titan = plan_of("torchtitan", pp=4, schedule="zb-v", options={"pipeline_parallel_first_stage_less_layers": 2})
    assert split_of(titan, 32) == Split(32, 4, 2, own=Weighted(2, 1), shape="vee")
    assert split_of(plan_of("pithtrain", pp=2, vpp=2, schedule="dualpipev"), 27).own == LightEnds(0)
