"""Layers' inputs that are offloaded: when they leave, when they come back, and what the host holds."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.check import check
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.problems import InputError

LAYERS, TOKENS = 8, 512
INPUT = TOKENS * 256 * 2


def found(offload: bool) -> Estimate:
    stack = {
        "framework": "torchtune",
        "versions": {},
        "loss": "chunked",
        "recompute": {"kind": "full", "reentrant": False},
    }
    more: dict[str, Any] = {"offload": {"activations": "cpu"}} if offload else {}
    return estimate(plan_of({**LLAMA, "num_hidden_layers": LAYERS}, stack=stack, **more))


def inputs(answer: Estimate, moment: str) -> int:
    """Bytes of layers' inputs at the largest moment of this name."""
    lines = answer.ledger.lines
    best = max((one for one in answer.ledger.moments if one.name == moment), key=lambda one: one.allocated)
    return sum(lines[at].unit * count for at, count in best.live if lines[at].name == "hidden states")


def test_no_input_of_a_layer_is_left_at_the_loss_but_the_head_s_own() -> None:
    assert inputs(found(False), "step 2: loss") >= LAYERS * INPUT
    assert inputs(found(True), "step 2: loss") <= INPUT


def test_all_of_them_lie_in_page_locked_memory() -> None:
    assert [(line.unit, count) for line, count in found(True).ledger.host] == [(INPUT, LAYERS)]
    assert found(False).ledger.host == ()


def test_what_leaves_comes_back() -> None:
    """The second step begins with as much as the third would."""
    ledger = found(True).ledger
    alive = 0
    for _, events, repeat, _ in ledger.segments:
        alive += repeat * sum(
            (1 if event > 0 else -1) for event in events if ledger.lines[abs(event) - 1].name == "hidden states"
        )
    assert alive == 0


def test_without_recompute_it_is_refused() -> None:
    stack = {"framework": "torchtune", "versions": {}, "recompute": "none"}
    with pytest.raises(InputError) as raised:
        check(plan_of(stack=stack, offload={"activations": "cpu"}))
    assert "offload.activations" in [one.path for one in raised.value.problems]


def trl(reentrant: bool, offload: bool = True) -> Estimate:
    stack = {"recompute": {"kind": "full", "reentrant": reentrant}}
    more: dict[str, Any] = {"offload": {"activations": "cpu"}} if offload else {}
    return estimate(plan_of({**LLAMA, "num_hidden_layers": LAYERS}, stack=stack, **more))


@pytest.mark.parametrize(("reentrant", "stays"), [(True, 5), (False, 3)])
def test_trl_keeps_the_last_tensors_that_were_packed(reentrant: bool, stays: int) -> None:
    """Five packed tensors stay; without reentrance a layer packs two, of which one is empty."""
    alive, most = 0, 0
    ledger = trl(reentrant).ledger
    for moment, events, repeat, _ in ledger.segments:
        for event in events * repeat:
            if event and ledger.lines[abs(event) - 1].name == "hidden states":
                alive += 1 if event > 0 else -1
                most = max(most, alive) if moment == "step 1: forward" else most
    assert stays <= most <= stays + 1  # and the layer's own output
    plain = trl(reentrant, False)
    assert inputs(plain, "step 2: loss") - inputs(trl(reentrant), "step 2: loss") == LAYERS * INPUT
    assert [(line.unit, count) for line, count in ledger.host] == [(INPUT, LAYERS)]


@pytest.mark.parametrize(
    "sections",
    [
        {"stack": {"recompute": "none"}},
        {"stack": {"recompute": "full"}, "parallel": {"strategy": "ddp", "dp": 2}},
        {"stack": {"recompute": "full", "kernels": ["liger"]}},
    ],
)
def test_what_trl_offloads_otherwise_is_refused(sections: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"offload\.activations"):
        check(plan_of(**sections, offload={"activations": "cpu"}))


@pytest.mark.parametrize("beyond", [{"task": "dpo"}, {"evaluation": {"batches": 2}}])
def test_a_forward_without_gradients_packs_nothing(beyond: dict[str, Any]) -> None:
    """Of a reference model, or of an evaluation: no input of its layers goes or comes."""
    stack = {"recompute": {"kind": "full", "reentrant": False}}
    if "task" in beyond:
        beyond = {**beyond, "batch": {"loss_tokens": 256}}
        versions = {"torch": "2.14.1", "transformers": "5.24.0", "trl": "1.16.0"}
        stack |= {"versions": versions, "loss": "fused-linear"}
    ledger = estimate(plan_of(stack=stack, offload={"activations": "cpu"}, **beyond)).ledger
    alive: Counter[int] = Counter()
    for _, events, repeat, _ in ledger.segments:
        for event in events * repeat:
            alive[abs(event)] += 1 if event > 0 else -1
            assert not event or alive[abs(event)] >= 0, ledger.lines[abs(event) - 1].name


def test_inputs_of_several_widths_are_refused() -> None:
    """A quantised layer hands the dtype of its input on: behind norms in fp32 hidden states are wider."""
    with pytest.raises(InputError, match=r"offload\.activations"):
        check(
            plan_of(
                stack={"recompute": "full"},
                offload={"activations": "cpu"},
                quantization={"kind": "nf4"},
                adapter={"kind": "lora", "r": 8, "targets": ["q_proj"]},
                precision={"norms": "fp32"},
            )
        )
