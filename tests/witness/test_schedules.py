"""The generator of schedules against the orders that torch.distributed.pipelining's own schedule objects make."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")

from trainledger.base.problems import InputError
from trainledger.lines.schedules import Flavour, Pipeline, actions
from trainledger.plan.stages import Split, stage_of

KINDS = {"FORWARD": "F", "FULL_BACKWARD": "B", "BACKWARD_INPUT": "I", "BACKWARD_WEIGHT": "W"}
SHAPES = {"zb-v": "vee", "dualpipev": "vee"}


def orders(name: str, ranks: int, count: int, chunks: int) -> dict[int, list[tuple[str, int, int]]]:
    """torch's order of every rank as (kind, micro-batch, stage); overlapped pairs as the forward and the backward."""
    from torch.distributed.pipelining import schedules

    kinds: dict[str, Any] = {
        "interleaved": schedules.ScheduleInterleaved1F1B, "zb-h1": schedules.ScheduleInterleavedZeroBubble,
        "zb-v": schedules.ScheduleZBVZeroBubble, "dualpipev": schedules.ScheduleDualPipeV,
    }  # fmt: skip

    def stage(index: int) -> SimpleNamespace:
        own = {"group_rank": 0, "group_size": ranks, "num_stages": ranks * chunks, "stage_index": index}
        return SimpleNamespace(**own, is_first=index == 0, is_last=index == ranks * chunks - 1, submod=None)

    table = kinds[name]([stage(chunk * ranks) for chunk in range(chunks)], count).pipeline_order
    return {rank: [one for action in table[rank] for one in _flat(action)] for rank in range(ranks)}


def _flat(action: Any) -> list[tuple[str, int, int]]:
    if action is None or action.computation_type.name == "REDUCE_GRAD":
        return []
    if action.sub_actions:
        return [one for part in action.sub_actions for one in _flat(part)]
    return [(KINDS[action.computation_type.name], action.microbatch_index, action.stage_index)]


def run(kind: str, ranks: int, rank: int, count: int) -> list[tuple[str, int, int]]:
    """What torch's schedule of one stage a rank does when it runs a step, in its own loop."""
    from torch.distributed.pipelining import schedules

    done: list[tuple[str, int, int]] = []

    def forward(micro_batch: int, *_: Any, **__: Any) -> None:
        done.append(("F", micro_batch, rank))

    def backward(micro_batch: int, **_: Any) -> None:
        done.append(("B", micro_batch, rank))

    def nothing(*_: Any) -> list[Any]:
        return []

    names = [f"get_{way}_{end}_ops" for way in ("fwd", "bwd") for end in ("recv", "send")]
    stage: Any = SimpleNamespace(
        forward_one_chunk=forward, backward_one_chunk=backward, num_stages=ranks, stage_index=rank, is_last=False,
        is_first=False, perform_reduce_grad=nothing, **dict.fromkeys(names, nothing),
    )  # fmt: skip
    made: Any = {"gpipe": schedules.ScheduleGPipe, "1f1b": schedules.Schedule1F1B}[kind](stage, count, loss_fn=min)
    made._initialize_stage = lambda *_, **__: None
    made._step_microbatches([()] * count, [{}] * count, [None] * count, None)
    return done


@pytest.mark.parametrize("count", [1, 3, 8, 20])
@pytest.mark.parametrize("ranks", [1, 2, 4, 7])
@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_the_order_is_what_torch_runs(name: str, ranks: int, count: int) -> None:
    if name == "1f1b" and count < ranks:
        with pytest.raises(ValueError, match="must be greater than"):
            run(name, ranks, 0, count)
        with pytest.raises(InputError, match="as many as ranks"):
            actions(Pipeline(name, ranks, count, flavour=Flavour.TORCH), 0)
        return
    for rank in range(ranks):
        done = actions(Pipeline(name, ranks, count, flavour=Flavour.TORCH), rank)
        assert [(one.kind.value, one.micro_batch, rank) for one in done] == run(name, ranks, rank, count)


CASES = [
    *(("interleaved", p, m, v) for p, m in ((2, 2), (2, 3), (4, 3), (4, 8), (4, 10), (4, 16), (3, 8)) for v in (2, 3)),
    *(("zb-h1", p, m, v) for p, m in ((2, 4), (4, 3), (4, 8), (4, 10), (8, 16)) for v in (1, 2, 3)),
    *(("zb-v", p, m, 2) for p in (1, 2, 4, 5) for m in (1, 2, 7, 9, 16)),
    *(("dualpipev", p, 2 * p + more, 2) for p in (1, 2, 3, 4, 8) for more in (0, 1, 7)),
]


@pytest.mark.parametrize(("name", "ranks", "count", "chunks"), CASES)
def test_the_order_is_that_of_torchs_own_schedule(name: str, ranks: int, count: int, chunks: int) -> None:
    theirs = orders(name, ranks, count, chunks)
    split = Split(0, ranks, chunks, shape=SHAPES.get(name, "loop"))
    for rank in range(ranks):
        done = actions(Pipeline(name, ranks, count, chunks, flavour=Flavour.TORCH), rank)
        ours = [(one.kind.value, one.micro_batch, stage_of(split, rank, one.chunk)) for one in done]
        assert ours == theirs[rank]
