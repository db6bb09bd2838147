"""Backward in two parts: what stays for weights' gradients, and when it goes."""

from __future__ import annotations

import pytest

from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.megatron import job_of
from trainledger.ledger.split import Split
from trainledger.ledger.walk import run_forward
from trainledger.model.build import model_of

from .test_mega_moe import ALL_TO_ALL, LLAMA, routed
from .test_walk import names, two_linears


def split(spans: list[tuple[int, int]]) -> list[str]:
    tape, _, z = two_linears()
    forward = run_forward(tape, frozenset({z}), saving=True)
    tape.split = spans
    back = Split(tape, dict(forward.held), frozenset())
    back.leaf = lambda weight, storage: [-storage - 1]
    back.seed(z, "gradient of z")
    back.run(0, len(tape.prims))
    assert not back.put_off
    return names(tape, back.events)


def test_weights_of_a_span_come_in_their_order_once_it_has_run() -> None:
    assert split([(0, 2)]) == [
        "+gradient of first: output", "+gradient of x",
        "+gradient of weight", "-gradient of z", "-first: output", "-gradient of weight",
        "+gradient of weight", "-gradient of first: output", "-x", "-gradient of weight",
    ]  # fmt: skip


def test_each_span_ends_by_itself_and_others_do_not_wait() -> None:
    apart = split([(1, 2)])
    assert apart.index("-first: output") < apart.index("+gradient of x")
    assert split([(0, 1), (1, 2)]).count("+gradient of weight") == 2


@pytest.mark.parametrize("grouped", [True, False])
def test_experts_weights_wait_for_the_end_of_their_backward(grouped: bool) -> None:
    def walked(delayed: bool) -> tuple[list[str], int]:
        overlap = {"overlap_moe_expert_parallel_comm": True, "delay_wgrad_compute": delayed}
        plan = routed(LLAMA, {**ALL_TO_ALL, "moe_grouped_gemm": grouped, **overlap})
        job = job_of(plan, model_of(plan), "sm90")
        walks = Walks(job, Leaves(False, job.run.gradients, {}, copied=True), plan.stack.recompute)
        (kind,), _ = walks.groups(walks.whole())[0]
        lines, events = job.book.lines, walks.layer((kind,), False, (False, False)).backward
        total = sum(lines[abs(event) - 1].unit * (1 if event > 0 else -1) for event in events)
        return [lines[event - 1].name.split(" (")[0] for event in events if event > 0], total

    (plain, left), (later, also) = walked(False), walked(True)
    assert sorted(plain) == sorted(later)  # the same tensors are made,
    assert left == also  # and the same is left
    made = [[at for at, name in enumerate(names) if "gradient of mlp.experts" in name] for names in (plain, later)]
    weights = [[at for at in one if "weight" in names[at]] for one, names in zip(made, (plain, later), strict=True)]
    assert max(made[1]) == max(weights[1])  # in both, weights come last; put off, all of them do
    rest = [at for at in made[1] if at not in weights[1]]
    assert max(rest, default=-1) < min(weights[1])
    assert max(at for at in made[0] if at not in weights[0]) > min(weights[0])
