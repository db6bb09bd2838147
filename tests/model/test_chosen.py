"""Models of which some modules are trained: layers that differ by that stand apart, and nothing is counted twice."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.model import counts
from trainledger.model.build import build, model_of
from trainledger.model.chosen import chosen
from trainledger.model.mapped import mapped
from trainledger.model.program import Linear, Looped, Model, Weight

FOUR = {**LLAMA, "num_hidden_layers": 4}
MIXTRAL = {**FOUR, "model_type": "mixtral", "num_local_experts": 4, "num_experts_per_tok": 2}


def layers(model: Model) -> list[tuple[tuple[int, ...], int]]:
    """Each block's layers, with how many of its weights are trained."""
    return [(block.layers, sum(not weight.frozen for weight in block.weights)) for block in model.blocks]


@pytest.mark.parametrize(
    ("patterns", "found"),
    [
        (["layers.3"], [((0, 1, 2), 0), ((3,), 9)]),
        (["model.layers.[23].*"], [((0, 1), 0), ((2, 3), 9)]),
        (["layers.0.mlp", "layers.2.mlp", "layers.3"], [((0, 2), 3), ((1,), 0), ((3,), 9)]),
        (["mlp"], [((0, 1, 2, 3), 3)]),
        (["lm_head"], [((0, 1, 2, 3), 0)]),
        (["layers"], [((0, 1, 2, 3), 9)]),
    ],
)
def test_layers_that_differ_by_what_is_trained_stand_apart(patterns: list[str], found: Any) -> None:
    model = chosen(build(FOUR), patterns)
    assert layers(model) == found
    assert counts.total(model) == counts.total(build(FOUR))
    assert [name for name, _ in counts.storages(chosen(model, ["*"]))] == [name for name, _ in counts.storages(model)]


@pytest.mark.parametrize("keys", [FOUR, MIXTRAL, {**FOUR, "model_type": "gpt_neox"}])
def test_operations_read_the_weights_that_the_model_lists(keys: dict[str, Any]) -> None:
    model, read = chosen(build(keys), ["layers.1", "lm_head"]), list[Weight]()

    def seen(weight: Weight) -> Weight:
        read.append(weight)
        return weight

    for op in (*model.prologue, *(op for block in model.blocks for op in block.ops), *model.head.ops):
        assert mapped(op, seen) is op
    every = (*model.embeddings, *model.head.weights, *(one for block in model.blocks for one in block.weights))
    assert set(read) == set(every)


def test_experts_that_run_one_after_the_other_are_marked_too() -> None:
    plan = plan_of(MIXTRAL, stack={"versions": {"torch": "2.4.1", "transformers": "4.48.0"}}, trainable=["layers.3"])
    specs = [[op.spec for op in block.ops if isinstance(op.spec, Looped)] for block in model_of(plan).blocks]
    assert [{weight.frozen for spec in found for weight in spec.weights} for found in specs] == [{True}, {False}]


def test_a_tied_head_is_its_embedding() -> None:
    for name in ("lm_head", "embed_tokens", "lm_head.*"):
        model = chosen(build({**FOUR, "tie_word_embeddings": True}), [name])
        (table,) = model.embeddings
        (out,) = (op.spec for op in model.head.ops if isinstance(op.spec, Linear))
        assert table is out.weight or table == out.weight
        assert not table.frozen
        assert counts.trainable(model) == table.elements


def test_an_adapter_marks_its_own() -> None:
    plan = plan_of(FOUR, adapter={"kind": "lora", "r": 4, "targets": ["q_proj"]})
    assert not any(weight.frozen for _, weight in counts.storages(model_of(plan)))
