"""The units in which weights are gathered."""

from __future__ import annotations

from typing import Any

from tests.plans import LLAMA, plan_of
from trainledger.ledger.units import EMBEDDING, HEAD, ROOT, ROOT_KEY, ByUnit, Unit, apart, staying, units_of
from trainledger.model.build import model_of
from trainledger.model.program import Model

NEW = {"accelerate": "1.14.0"}


def model(**keys: Any) -> Model:
    sections = {"adapter": keys.pop("adapter", None)}
    return model_of(plan_of({**LLAMA, **keys}, **sections))


def test_layers_are_units_and_the_rest_is_the_root() -> None:
    units = units_of(model(), {})
    assert units.last == 4
    assert sorted(units.own) == [1, 2, 3]
    assert units.root is not None
    assert [member.name for member in units.root.members] == [
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    ]
    assert units.keys(0) == ()
    assert units.unit(ROOT_KEY) is units.root


def test_weights_stand_in_a_unit_as_its_class_registers_them() -> None:
    layer = units_of(model(), {}).own[1][0]
    assert layer.members[0].weight.name == "self_attn.q_proj.weight"
    assert [one.weight.name for one in layer.members[-2:]] == [
        "input_layernorm.weight",
        "post_attention_layernorm.weight",
    ]


def test_every_weight_is_in_one_unit_once() -> None:
    for versions, wraps in (({}, True), (NEW, True), ({}, False)):
        units = units_of(model(), versions, wraps)
        assert sum(len(unit.members) for unit in units.every()) == 3 + 3 * 9


def test_accelerate_wraps_the_ends_by_themselves_unless_they_share_a_weight() -> None:
    own = units_of(model(), NEW)
    assert (own.own[0][0].name, own.own[own.last][0].name, own.root) == (EMBEDDING, HEAD, None)
    tied = units_of(model(tie_word_embeddings=True), NEW)
    assert sorted(tied.own) == [1, 2, 3]
    assert tied.root is not None


def test_without_wrapping_the_model_is_one_unit() -> None:
    units = units_of(model(), {}, wraps=False)
    assert [unit.name for unit in units.every()] == [ROOT]


def test_what_an_adapter_trains_stands_apart() -> None:
    lora = {"kind": "lora", "r": 4, "targets": ["q_proj", "v_proj"], "dtype": "fp32"}
    units = apart(units_of(model(adapter=lora), {}))
    frozen, tuned = units.own[1]
    assert not any(member.weight.tuned for member in frozen.members)
    assert [member.weight.tuned for member in tuned.members] == [True] * 4
    assert tuned.dtype is not None
    assert tuned.dtype.name == "fp32"
    assert units.key(1, tuned.members[0].weight) == (1, 1)


def test_torchtitan_wraps_the_ends_by_themselves_from_a_version_on() -> None:
    assert units_of(model(), {"torchtitan": "775a486"}).root is not None
    assert units_of(model(), {"torchtitan": "6fc499f6"}).root is None


def test_units_that_stay_are_named_by_piece() -> None:
    units = staying(units_of(model(), {}), frozenset({3}))
    assert units.stay == {3}
    assert units_of(model(), {}).stay == frozenset()


def test_what_is_worked_out_by_unit_is_worked_out_once_for_equal_layers() -> None:
    asked: list[str] = []

    def count(unit: Unit) -> int:
        asked.append(unit.name)
        return len(unit.members)

    counted = ByUnit(count)
    units = units_of(model(), {})
    assert [counted(unit) for unit in units.every()] == [9, 9, 9, 3]
    assert asked == ["model.layers", ROOT]
