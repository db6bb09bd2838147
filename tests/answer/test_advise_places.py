"""Advice for what does not fit beside the devices: ranked by the place that is furthest over, bytes being its own."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.answer.test_advise import BASE, draft
from trainledger.answer.advise import Advice, advise
from trainledger.answer.advise_work import Option
from trainledger.answer.changed import Change, planned, with_changes
from trainledger.answer.estimate import estimate
from trainledger.answer.moves import taken
from trainledger.answer.walls import DEVICE, places_of, walls_of
from trainledger.base.units import GIB, MIB
from trainledger.facts.moves_places import PLACE_MOVES
from trainledger.plan.problems import known_paths
from trainledger.show.advise import document, sections
from trainledger.show.estimate import View
from trainledger.show.table import plain

ROOMY = {"name": "mine", "memory": 60 * GIB}
LARGE = {**BASE["model"], "hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 32}
OFFLOADED: dict[str, Any] = {
    **BASE,
    "model": LARGE,
    "optimizer": {"name": "adamw", "grad_clip": 1.0},
    "precision": {**BASE["precision"], "master": "fp32"},
    "parallel": {"strategy": "zero3", "world": 4},
    "offload": {"optimizer": "cpu", "params": "cpu"},
    "stack": {
        "framework": "deepspeed",
        "versions": {"torch": "2.13.0", "transformers": "5.24.0", "deepspeed": "0.19.6"},
        "options": {"dataloader_num_workers": 4},
    },
    "device": ROOMY,
}
LOADED = {**BASE, "parallel": {"strategy": "fsdp2", "world": 8}, "device": ROOMY}
SAVED = {**BASE, "device": ROOMY, "save": {"limit": 4, "disk": "1500MiB", "asynchronous": True}}


def narrow(plan: dict[str, Any], share: float, ranks: int = 4) -> dict[str, Any]:
    """The plan on nodes with this share of the host's memory that it needs."""
    whole = estimate(draft({**plan, "node": {"ranks": ranks, "memory": "900TiB"}}).plan)
    need = next(one.need for one in places_of(whole) if one.place == "host")
    return {**plan, "node": {"ranks": ranks, "memory": round(need * share)}}


def names(found: Advice) -> list[str]:
    return [option.taken.name for option in found.best]


def agrees(plan: dict[str, Any], found: Advice, option: Option) -> None:
    """The changed plan is a plan, and what it saves at every place is the difference of two estimates."""
    data = json.loads(json.dumps(with_changes(plan, option.taken.changes)))
    after = estimate(draft(data).plan)
    before, then = ({one.place: one for one in places_of(one)} for one in (found.now, after))
    assert [one.then.place for one in option.effects[: len(found.held)]] == [one.place for one in found.held]
    for effect in option.effects:
        place = effect.then.place
        was, now = before.get(place), then.get(place)
        assert effect.saved == (was.need if was else 0) - (now.need if now else 0)
        assert effect.then.need == (now.need if now else 0)
    walls = walls_of(tuple(then.values()))
    moved = walls[0] if walls and walls[0].place != found.held[0].place else None
    assert (option.moved.place if option.moved else None) == (moved.place if moved else None)
    assert option.verdict.outcome == after.verdict.outcome


def test_a_node_that_is_full_is_what_changes_are_measured_at() -> None:
    plan = narrow(OFFLOADED, 0.8)
    found = advise(draft(plan).data, most=1)
    first = found.held[0]
    assert (first.place, first.moment) == ("host", "steps")
    assert found.now.verdict.outcome != "fits"
    assert "what is offloaded not page-locked" in names(found)
    for option in found.best:
        agrees(plan, found, option)
        assert option.saved > 0
    idle = {one.taken.name: one.why for one in found.idle}
    assert "what does not fit is host memory, steps" in idle["half the micro-batch, twice the accumulation"]


def test_a_change_that_moves_the_wall_to_the_device_says_so() -> None:
    small = {**OFFLOADED, "device": {"name": "mine", "memory": 13 * GIB}}
    plan = narrow(small, 0.5)
    found = advise(draft(plan).data, most=1)
    back = next(one for one in found.singles if one.taken.name == "weights and optimizer on the device")
    assert back.moved is not None
    assert back.moved.place == DEVICE
    text = "\n".join(plain(one) for one in sections(found, lambda _: (), View(), 99) if one.text or one.rows)
    assert "What does not fit is host memory, steps" in text
    assert "but then device memory, " in text
    data = document(found, lambda _: ())
    assert data["place"] == "host"
    assert {one["place"] for one in data["best"]} == {"host"}
    assert "device" in {one["moved_to"] for one in data["best"]}
    json.dumps(data)


def test_two_places_that_do_not_fit_are_both_measured_the_furthest_over_first() -> None:
    plan = narrow({**OFFLOADED, "save": {"limit": 9, "disk": MIB}}, 0.9)
    found = advise(draft(plan).data, most=1)
    assert [one.place for one in found.held] == ["disk", "host"]
    assert "one checkpoint kept" in names(found)
    assert all(len(option.saves) == 2 for option in found.best)
    for option in found.best:
        agrees(plan, found, option)
        assert max(option.saves) > 0


def test_copies_at_loading_and_gathered_saves_have_changes_of_their_own() -> None:
    loaded = advise(draft(narrow(LOADED, 0.8, 8)).data, most=1)
    assert loaded.held[0].moment == "load"
    assert "one rank of a node reads the model, the others wait for it" in names(loaded)
    saved = advise(draft(SAVED).data, most=1)
    assert saved.held[0].place == "disk"
    assert names(saved)[0] == "one checkpoint kept"


def test_changes_of_other_places_are_not_tried_where_the_device_alone_does_not_fit() -> None:
    found = advise(draft(with_changes(BASE, [Change("node", {"ranks": 8, "memory": "900TiB"})])).data, most=1)
    assert [one.place for one in found.held] == [DEVICE]
    own = {move.name for move in PLACE_MOVES} - {"frozen weights in NF4"}
    assert not own & {one.taken.name for one in (*found.singles, *found.idle, *found.refused)}


CASES = {"offloaded": narrow(OFFLOADED, 0.7), "loaded": narrow(LOADED, 0.7, 8), "saved": SAVED}


@settings(max_examples=30, deadline=None)
@given(data=st.data(), name=st.sampled_from(sorted(CASES)), micro=st.sampled_from([1, 2]), workers=st.integers(0, 3))
def test_every_change_of_other_places_is_a_plan(data: st.DataObject, name: str, micro: int, workers: int) -> None:
    """Whatever the plan, a change that its conditions let through can be estimated."""
    changes = [Change("batch.micro_batch", micro), Change("stack.options", {"dataloader_num_workers": workers})]
    plan = with_changes(CASES[name], changes)
    one = data.draw(st.sampled_from(list(taken(plan, planned(plan), PLACE_MOVES))))
    after = estimate(draft(json.loads(json.dumps(with_changes(plan, one.changes)))).plan)
    assert all(place.need >= 0 for place in places_of(after))


@pytest.mark.parametrize("move", PLACE_MOVES, ids=lambda move: move.name)
def test_rows_name_keys_of_the_plan(move) -> None:
    for path, _ in move.sets:
        assert path in known_paths() or path.startswith(("parallel.options.", "stack.options.", "stack.allocator."))
