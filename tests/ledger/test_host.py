"""Inputs of recomputed layers that wait in the host's memory: gone from the device, back one by one."""

from __future__ import annotations

from typing import Any

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate

LAYERS, TOKENS = 6, 1024
INPUT = TOKENS * LLAMA["hidden_size"] * 2


def found(offload: bool, **changed: Any) -> Estimate:
    stack = {
        "framework": "deepspeed", "versions": {"transformers": "4.51.3"}, "attention": "flash",
        "recompute": {"kind": "full", "reentrant": True},
    }  # fmt: skip
    more: dict[str, Any] = {"offload": {"activations": "cpu"}} if offload else {}
    parallel = {"strategy": "zero3", "dp": 4}
    model = {**LLAMA, "num_hidden_layers": LAYERS}
    return estimate(plan_of(model, stack=stack, parallel=parallel, batch={"sequence": TOKENS}, **more, **changed))


def inputs(answer: Estimate, moment: str) -> int:
    """Most hidden states that live at once in a moment of this name."""
    lines, count, most = answer.ledger.lines, 0, 0
    for name, events, repeat, _ in answer.ledger.segments:
        before = count
        for event in events:
            if lines[abs(event) - 1].name == "hidden states":
                count += 1 if event > 0 else -1
                most = max(most, count if name == moment else 0)
        count += (count - before) * (repeat - 1)
    return most


def test_the_device_keeps_the_first_input_and_the_last_while_the_model_runs() -> None:
    assert inputs(found(False), "step 2: loss") >= LAYERS
    # the embedding's result has a second name in the model's forward, the head reads the last one
    assert inputs(found(True), "step 2: forward") <= 3
    assert inputs(found(True), "step 2: loss") <= 2


def test_a_layer_s_input_is_there_for_its_backward_alone() -> None:
    answer = found(True)
    backwards = [one.moment for one in answer.ledger.segments if one.moment.startswith("step 2: backward of layer")]
    assert all(inputs(answer, name) <= 2 for name in backwards)


def test_nothing_is_left_on_the_device() -> None:
    lines = found(True).ledger.lines
    count = sum(
        (repeat if event > 0 else -repeat)
        for _, events, repeat, _ in found(True).ledger.segments
        for event in events
        if lines[abs(event) - 1].name == "hidden states"
    )
    assert count == 0


def test_the_host_has_one_for_each_layer() -> None:
    waiting = [(line.unit, count) for line, count in found(True).ledger.host if line.name == "inputs of layers"]
    assert waiting == [(INPUT, LAYERS)]


def test_a_frozen_embedding_s_result_stays_and_its_copy_comes_and_goes() -> None:
    """The graph holds what was made to need a gradient."""
    answer = found(True, adapter={"kind": "lora", "r": 4, "targets": ["q_proj"]})
    assert any(line.name.endswith("from the host") for line in answer.ledger.lines)
