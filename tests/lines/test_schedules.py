"""Schedules: every rank's actions against the published rules, and against one another."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.base.problems import InputError
from trainledger.lines.actions import Action, Kind, in_flight
from trainledger.lines.schedules import Flavour, Pipeline, actions, schedule_problems
from trainledger.plan.stages import Split, stage_of

SHAPES = {"zb-v": "vee", "dualpipev": "vee", "dualpipe": "both"}


def written(pipeline: Pipeline, rank: int) -> str:
    return " ".join(f"{one.kind.value}{one.micro_batch + 1}" for one in actions(pipeline, rank))


@st.composite
def pipelines(draw: st.DrawFn) -> Pipeline:
    """Pipelines that can run, of every schedule."""
    name = draw(st.sampled_from(["gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "dualpipe", "dualpipev"]))
    ranks, flavour = draw(st.integers(1, 6)), draw(st.sampled_from(list(Flavour)))
    count = draw(st.integers(1, 20))
    if name == "dualpipe":
        half = draw(st.integers(1, 3))
        return Pipeline(name, 2 * half, 4 * half + 2 * draw(st.integers(0, 5)), 2)
    if name in ("zb-v", "dualpipev"):
        return Pipeline(name, ranks, count + (2 * ranks if name == "dualpipev" else 0), 2)
    if name == "1f1b" and flavour is Flavour.TORCH:
        return Pipeline(name, ranks, ranks - 1 + count, flavour=flavour)
    if name not in ("interleaved", "zb-h1"):
        return Pipeline(name, ranks, count, flavour=flavour)
    chunks = draw(st.integers(2 if name == "interleaved" else 1, 4))
    if flavour is Flavour.TORCH:
        rounds = draw(st.integers(1, 3))
        count = rounds * draw(st.integers(ranks, 2 * ranks - 1) if rounds > 1 else st.integers(1, 2 * ranks - 1))
        rounds = max(count // ranks, 1)
        return Pipeline(name, ranks, count - count % rounds, chunks, flavour=flavour)
    group = draw(st.integers(ranks, 2 * ranks))
    rest = draw(st.sampled_from([0, *range(ranks, group)]))
    return Pipeline(name, ranks, group * draw(st.integers(1, 3)) + rest, chunks, group, ahead=draw(st.integers(0, 1)))


@given(pipelines())
def test_every_micro_batch_goes_once_forward_and_then_once_back_through_each_chunk(pipeline: Pipeline) -> None:
    for rank in range(pipeline.ranks):
        done = actions(pipeline, rank)
        forward = [(one.micro_batch, one.chunk) for one in done if one.kind is Kind.FORWARD]
        if pipeline.schedule == "dualpipe":
            half = pipeline.micro_batches // 2
            expected = {(each, int(each >= half)) for each in range(pipeline.micro_batches)}
        else:
            expected = {(each, chunk) for each in range(pipeline.micro_batches) for chunk in range(pipeline.chunks)}
        assert len(forward) == len(expected)
        assert set(forward) == expected
        seen: dict[tuple[int, int], list[str]] = {}
        for one in done:
            seen.setdefault((one.micro_batch, one.chunk), []).append(one.kind.value)
        assert set(map("".join, seen.values())) <= {"FB", "FIW"}


@given(pipelines())
def test_all_ranks_together_never_wait_for_one_another_forever(pipeline: Pipeline) -> None:
    split = Split(0, pipeline.ranks, pipeline.chunks, shape=SHAPES.get(pipeline.schedule, "loop"))
    queues = [list(actions(pipeline, rank)) for rank in range(pipeline.ranks)]
    done: set[tuple[bool, int, int]] = set()

    def ready(rank: int, action: Action) -> tuple[bool, int, int] | None:
        stage = stage_of(split, rank, action.chunk)
        if action.kind is Kind.FORWARD:
            before = (True, stage - 1, action.micro_batch)
            return (True, stage, action.micro_batch) if stage == 0 or before in done else None
        if action.kind is Kind.WEIGHT:
            return (False, stage, action.micro_batch)
        before = (False, stage + 1, action.micro_batch)
        last = stage == split.count - 1
        return (False, stage, action.micro_batch) if last or before in done else None

    moved = True
    while moved:
        moved = False
        for rank, queue in enumerate(queues):
            while queue and (event := ready(rank, queue[0])) is not None:
                done.add(event)
                queue.pop(0)
                moved = True
    assert not any(queues)


ranks_and_counts = st.integers(1, 12).flatmap(
    lambda p: st.tuples(st.just(p), st.integers(0, p - 1), st.integers(1, 40))
)


@given(ranks_and_counts)
def test_in_flight_as_published_with_one_chunk(case: tuple[int, int, int]) -> None:
    p, r, m = case
    assert in_flight(actions(Pipeline("gpipe", p, m), r)).most == m
    assert in_flight(actions(Pipeline("1f1b", p, m), r)).most == min(m, p - r)
    h1, h2 = (in_flight(actions(Pipeline(name, p, m), r)) for name in ("zb-h1", "zb-h2"))
    assert h1.most == min(m, p - r)
    assert h1.held == min(m, p)  # the paper: no more than 1F1B holds, on every rank
    assert h2.most == min(m, 2 * (p - r) - 1)
    assert h2.held == min(m, 2 * p - 1)


@given(ranks_and_counts, st.integers(2, 5))
def test_in_flight_as_published_with_interleaved_chunks(case: tuple[int, int, int], v: int) -> None:
    p, r, rounds = case
    m = p * rounds
    held = in_flight(actions(Pipeline("interleaved", p, m, v), r))
    assert held.most == min(m * v, 2 * (p - r - 1) + (v - 1) * p + 1)
    if r == 0 and m >= 2 * p:  # in layers of a rank, 1F1B's first rank has p: the factor is 1 + (p - 1) / (p v)
        assert held.most / (v * p) == pytest.approx(1 + (p - 1) / (p * v))


@given(st.integers(1, 10).flatmap(lambda p: st.tuples(st.just(p), st.integers(0, p - 1), st.integers(0, 9))))
def test_in_flight_as_published_on_the_way_there_and_back(case: tuple[int, int, int]) -> None:
    p, r, more = case
    assert in_flight(actions(Pipeline("zb-v", p, 2 * p - 1 + more, 2), r)).held == 2 * p  # half chunks: 1F1B's p whole
    assert in_flight(actions(Pipeline("dualpipev", p, 2 * p + 1 + more, 2), r)).most == 2 * p + 1  # stages PP = 2p
    pairs = Pipeline("dualpipe", 2 * p, 4 * p + 2 + 2 * more, 2)
    assert in_flight(actions(pairs, r)).most == in_flight(actions(pairs, 2 * p - 1 - r)).most == 2 * p + 1  # PP + 1


def test_the_handcrafted_schedules_of_the_zero_bubble_paper() -> None:
    h1, h2 = Pipeline("zb-h1", 4, 8), Pipeline("zb-h2", 4, 8)  # figure 3
    tail = "F5 I2 W2 F6 I3 W3 F7 I4 W4 F8 I5 W5 I6 W6 I7 W7 I8 W8"
    assert written(h1, 0) == f"F1 F2 F3 F4 I1 W1 {tail}"
    assert written(h1, 3) == ("F1 I1 F2 I2 F3 I3 F4 I4 W1 F5 I5 W2 F6 I6 W3 F7 I7 W4 F8 I8 W5 W6 W7 W8")
    assert written(h2, 0) == "F1 F2 F3 F4 F5 F6 F7 I1 W1 F8 I2 W2 I3 W3 I4 W4 I5 W5 I6 W6 I7 W7 I8 W8"
    assert written(h2, 3) == ("F1 I1 F2 I2 F3 I3 F4 I4 F5 I5 F6 I6 F7 I7 W1 F8 I8 W2 W3 W4 W5 W6 W7 W8")


def test_megatrons_table_of_five_micro_batches_in_groups_of_three() -> None:
    first = [one for one in actions(Pipeline("interleaved", 2, 5, 2, 3), 0) if one.kind is Kind.FORWARD]
    assert [one.micro_batch for one in first] == [0, 1, 2, 0, 1, 2, 3, 4, 3, 4]
    assert [one.chunk for one in first] == [0, 0, 0, 1, 1, 1, 0, 0, 1, 1]


def test_overlapped_expert_communication_forwards_one_more() -> None:
    for rank in range(4):
        plain, more = (in_flight(actions(Pipeline("interleaved", 4, 8, 2, ahead=ahead), rank)).most for ahead in (0, 1))
        assert more == plain + 1


def test_torch_groups_micro_batches_by_rounds() -> None:
    torch = Pipeline("interleaved", 4, 10, 2, flavour=Flavour.TORCH)
    assert torch.in_a_row == 5
    assert Counter(one.kind.value for one in actions(torch, 1)) == {"F": 20, "B": 20}


@pytest.mark.parametrize(
    ("pipeline", "paths", "fix"),
    [
        (Pipeline("interleaved", 4, 6, 2), ["batch.accumulation"], "The nearest that can is 4."),
        (Pipeline("interleaved", 4, 2, 2), ["batch.accumulation"], "The nearest that can is 4."),
        (Pipeline("interleaved", 4, 8), ["parallel.vpp"], "The nearest that can is 2."),
        (Pipeline("1f1b", 4, 3, flavour=Flavour.TORCH), ["batch.accumulation"], "The nearest that can is 4."),
        (Pipeline("1f1b", 4, 8, 2), ["parallel.vpp"], "The nearest that can is 1."),
        (Pipeline("zb-v", 4, 8, 3), ["parallel.vpp"], "The nearest that can is 2."),
        (Pipeline("interleaved", 4, 9, 2, flavour=Flavour.TORCH), ["batch.accumulation"], "The nearest that can is 8."),
        (Pipeline("dualpipe", 4, 7, 2), ["batch.accumulation"] * 2, "The nearest that can is 8."),
        (Pipeline("dualpipe", 3, 8, 2), ["parallel.pp"], "The nearest that can is 2."),
        (Pipeline("dualpipev", 4, 7, 2), ["batch.accumulation"], "The nearest that can is 8."),
        (
            Pipeline("interleaved", 4, 8, 2, 3),
            ["parallel.options.microbatch_group_size_per_virtual_pipeline_stage", "batch.accumulation"],
            "The nearest that can is 4.",
        ),
        (Pipeline("chimera", 4, 8), ["parallel.schedule"], ""),
    ],
)
def test_what_cannot_run_is_refused_with_the_nearest_that_can(pipeline: Pipeline, paths: list[str], fix: str) -> None:
    found = schedule_problems(pipeline)
    assert [problem.path for problem in found] == paths
    assert found[0].fix == fix
    with pytest.raises(InputError):
        actions(pipeline, 0)


def test_a_rank_that_there_is_not() -> None:
    with pytest.raises(IndexError, match="rank 4 of 4"):
        actions(Pipeline("1f1b", 4, 8), 4)


def idle(pipeline: Pipeline) -> list[int]:
    """Idle time of every rank between its first and its last action, each half of a backward as long as a forward."""
    split = Split(0, pipeline.ranks, pipeline.chunks, shape=SHAPES.get(pipeline.schedule, "loop"))
    queues = {rank: list(actions(pipeline, rank)) for rank in range(pipeline.ranks)}
    ends: dict[tuple[bool, int, int], int] = {}
    clock, start, work = [0] * pipeline.ranks, [-1] * pipeline.ranks, [0] * pipeline.ranks
    while any(queues.values()):
        for rank, queue in queues.items():
            while queue:
                kind, micro_batch, chunk = queue[0]
                stage = stage_of(split, rank, chunk)
                forward, free = kind is Kind.FORWARD, kind is Kind.WEIGHT
                free = free or (stage == 0 if forward else stage == split.count - 1)
                before = (forward, stage - 1 if forward else stage + 1, micro_batch)
                if not free and before not in ends:
                    break
                queue.pop(0)
                begin = max(clock[rank], 0 if free else ends[before])
                length = 2 if kind is Kind.BACKWARD else 1
                start[rank] = begin if start[rank] < 0 else start[rank]
                clock[rank], work[rank] = begin + length, work[rank] + length
                if kind is not Kind.WEIGHT:
                    ends[forward, stage, micro_batch] = clock[rank]
    return [clock[rank] - start[rank] - work[rank] for rank in range(pipeline.ranks)]


@pytest.mark.parametrize("ranks", [2, 4, 5, 8])
def test_bubbles_are_those_of_the_zero_bubble_paper(ranks: int) -> None:
    count = 3 * ranks
    assert idle(Pipeline("1f1b", ranks, count))[0] == 3 * (ranks - 1)
    assert idle(Pipeline("zb-h1", ranks, count))[0] == ranks - 1
    assert idle(Pipeline("zb-h2", ranks, count)) == [0] * ranks
    assert idle(Pipeline("zb-v", ranks, count, 2)) == [0] * ranks
