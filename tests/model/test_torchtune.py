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


def test_only_layers_with_an_adapter_are_quantised() -> None:
    model = made(targets=["q_proj", "v_proj"], quantization={"kind": "nf4", "double": True})
    packed = {op.name for op in model.blocks[0].ops if isinstance(op.spec, Linear) and op.spec.weight.packed}
    assert packed == {"self_attn.q_proj", "self_attn.v_proj"}
    assert tuned(model) == 3 * 8 * (256 + 256 + 256 + 128)


def test_a_family_that_is_not_known_is_named() -> None:
    with pytest.raises(InputError, match=r"model\.model_type"):
        made({**LLAMA, "model_type": "gpt_neox"})
