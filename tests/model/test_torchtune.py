"""torchtune's model of a plan: what differs from the Transformers class."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.base.problems import InputError
from trainledger.model.build import model_of
from trainledger.model.counts import total, tuned
from trainledger.model.program import Attention, Join, Linear, Model, Repeat, Rope


def made(model: dict[str, Any] = LLAMA, targets: list[str] | None = None, **sections: Any) -> Model:
    adapter = {"kind": "lora", "r": 8, "targets": targets, "dtype": "bf16"} if targets else None
    return model_of(plan_of(model, adapter=adapter, stack={"framework": "torchtune", "versions": {}}, **sections))


def test_as_many_parameters_as_the_transformers_class() -> None:
    assert total(made()) == total(model_of(plan_of()))


def test_heads_turn_in_pairs_and_are_repeated_after_that() -> None:
    specs = [op.spec for op in made().blocks[0].ops]
    turned = next(at for at, one in enumerate(specs) if isinstance(one, Rope))
    assert isinstance(specs[turned], Rope)
    assert getattr(specs[turned], "join", None) is Join.PAIRS
    assert [one.heads for one in specs[turned + 1 : turned + 3] if isinstance(one, Repeat)] == [4, 4]
    assert all(one.kv_heads == one.heads for one in specs if isinstance(one, Attention))


def test_the_table_of_positions_is_one_buffer() -> None:
    model = made({**LLAMA, "max_position_embeddings": 8192})
    assert {one.name: one.elements for one in model.buffers} == {
        "pos_embeddings.theta": 32,
        "pos_embeddings.cache": 8192 * 64,
    }
    assert model.rotary is None


EVERY = {*(f"self_attn.{name}_proj" for name in "qkvo"), *(f"mlp.{name}_proj" for name in ("gate", "up", "down"))}


@pytest.mark.parametrize(
    ("version", "names"),
    [
        ("0.2.1", {"self_attn.q_proj", "self_attn.v_proj"}),  # at first only layers with an adapter
        ("2024-07-28", {"self_attn.q_proj", "self_attn.v_proj"}),
        ("2024-07-29", EVERY),
        ("0.3.0", EVERY),
        ("", EVERY),
    ],
)
def test_layers_are_quantised(version: str, names: set[str]) -> None:
    stack = {"framework": "torchtune", "versions": {"torchtune": version} if version else {}}
    adapter = {"kind": "lora", "r": 8, "targets": ["q_proj", "v_proj"], "dtype": "bf16"}
    model = model_of(plan_of(LLAMA, adapter=adapter, quantization={"kind": "nf4", "double": True}, stack=stack))
    packed = {op.name for op in model.blocks[0].ops if isinstance(op.spec, Linear) and op.spec.weight.packed}
    assert packed == names
    assert tuned(model) == 3 * 8 * (256 + 256 + 256 + 128)


def test_a_family_that_is_not_known_is_named() -> None:
    with pytest.raises(InputError, match=r"model\.model_type"):
        made({**LLAMA, "model_type": "gpt_neox"})
