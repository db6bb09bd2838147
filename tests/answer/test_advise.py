"""Advice: what is named first in situations that users report, what changes are worth, and that each is a plan."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.house.rules import ROOT
from tests.plans import LLAMA
from trainledger.answer.advise import Advice, advise
from trainledger.answer.changed import Change, planned, with_changes
from trainledger.answer.estimate import estimate
from trainledger.answer.walls import needed
from trainledger.base.problems import InputError
from trainledger.base.units import GIB, MIB
from trainledger.importers.changed_lines import changed_lines
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.plan_file import draft_of
from trainledger.show.advise import document, sections
from trainledger.show.estimate import View
from trainledger.show.table import plain

SITUATIONS = [
    json.loads(line)
    for line in (ROOT / "tests" / "data" / "advice_situations.jsonl").read_text(encoding="utf-8").splitlines()
]
BASE: dict[str, Any] = {
    "model": {**LLAMA, "hidden_size": 1024, "intermediate_size": 4096, "num_attention_heads": 8, "vocab_size": 32000},
    "task": "sft",
    "precision": {"weights": "bf16", "compute": "bf16", "gradients": "bf16"},
    "optimizer": {"name": "adamw", "implementation": "foreach", "grad_clip": 1.0},
    "batch": {"micro_batch": 4, "sequence": 1024, "accumulation": 2},
    "stack": {"framework": "transformers", "versions": {"torch": "2.13.0", "transformers": "5.24.0"}},
    "device": {"name": "mine", "memory": 3 * GIB},
}


def draft(data: dict[str, Any]) -> Draft:
    return draft_of(Document(data, {}))


def test_there_are_twelve_situations() -> None:
    assert len(SITUATIONS) >= 12
    assert len({one["first"] for one in SITUATIONS}) >= 12


@pytest.mark.parametrize("given", SITUATIONS, ids=[one["asks"] for one in SITUATIONS])
def test_the_right_change_is_named_first(given: dict[str, Any]) -> None:
    found = advise(draft(given["plan"]).data, most=1)
    assert found.now.verdict.outcome != "fits"
    first = found.best[0]
    assert first.taken.name == given["first"]
    assert first.saved > 0
    if first.verdict.outcome == "fits":
        assert first.need <= given_memory(found)


def given_memory(found: Advice) -> int:
    margin = found.now.verdict.margin
    assert margin is not None
    return found.need + margin


@pytest.fixture(scope="module")
def found() -> Advice:
    return advise(draft(BASE).data)


def test_every_suggested_plan_is_a_plan_and_estimates_as_said(found: Advice) -> None:
    assert found.best
    assert found.combined
    for option in found.best:
        data = json.loads(json.dumps(with_changes(BASE, option.taken.changes)))
        after = estimate(draft(data).plan)
        assert after.peak.allocated.expected == option.allocated
        assert after.peak.moment == option.moment
        assert needed(after) == option.need == found.need - option.saved
        assert after.verdict.outcome == option.verdict.outcome


def test_what_fits_is_named_before_what_does_not_and_the_cheaper_first(found: Advice) -> None:
    order = ["fits", "tight", "does-not-fit"]
    outcomes = [order.index(str(option.verdict.outcome)) for option in found.best]
    assert outcomes == sorted(outcomes)
    levels = [option.taken.level for option in found.best if option.fits]
    assert levels == sorted(levels)


def test_combinations_are_worth_more_than_their_parts(found: Advice) -> None:
    singles = {option.taken.moves[0].name: option for option in found.singles}
    for option in found.combined:
        assert 2 <= len(option.taken.moves) <= 3
        assert len({move.group for move in option.taken.moves}) == len(option.taken.moves)
        parts = [singles[move.name] for move in option.taken.moves if move.name in singles]
        assert all(option.saved > part.saved for part in parts)
        assert not any(part.fits for part in parts)


def test_the_global_batch_is_kept(found: Advice) -> None:
    halved = [one for one in found.singles if one.taken.name.startswith(("half the micro-batch", "a quarter"))]
    assert halved
    for option in halved:
        batch = planned(BASE, option.taken.changes).batch
        assert batch.micro_batch * batch.accumulation == 8


def test_what_does_nothing_says_why() -> None:
    large = {**BASE["model"], "vocab_size": 128256}
    found = advise(
        draft(with_changes(BASE, [Change("model", large), Change("optimizer.implementation", "fused")])).data, most=1
    )
    why = {one.taken.name: one.why for one in found.idle}
    assert "step 2" in found.now.peak.moment
    loop = advise(draft(with_changes(BASE, [Change("model", large)])).data, most=1)
    said = next(one.why for one in loop.idle if one.taken.name == "fused optimizer step")
    assert "it saves" in said
    assert "optimizer, but the peak is" in said
    assert all(text for text in why.values())


def test_a_plan_without_a_device_is_advised_by_bytes() -> None:
    found = advise(draft(with_changes(BASE, [Change("device", None)])).data, most=1)
    saved = [option.saved for option in found.best]
    assert saved == sorted(saved, reverse=True)
    assert found.now.verdict.outcome is None


def test_a_plan_that_cannot_be_estimated_is_refused() -> None:
    with pytest.raises(InputError, match="grpo"):
        advise(draft(with_changes(BASE, [Change("task", "grpo")])).data)


def test_a_reader_can_act_on_the_text() -> None:
    given = draft_of(Document(BASE, {("batch", "micro_batch"): "run.yaml:7", ("batch", "accumulation"): "run.yaml:8"}))
    found = advise(given.data, most=1)
    lines = {option.taken.name: changed_lines(option.taken.changes, given) for option in found.best}
    text = "\n".join(
        plain(one) for one in sections(found, lambda one: lines[one.taken.name], View(), 99) if one.text or one.rows
    )
    assert "DOES NOT FIT" in text or "TIGHT" in text
    assert f"The peak is {found.now.peak.moment}" in text
    assert "run.yaml:7   micro_batch: 2   (now 4)" in text
    assert "run.yaml:8   accumulation: 4   (now 2)" in text
    for option in found.best:
        assert option.taken.name in text
        assert option.moment in text
        assert all(move.price.value in text for move in option.taken.moves)
    data = document(found, lambda one: lines[one.taken.name])
    assert [one["moves"][0] for one in data["best"]] == [one.taken.name for one in found.best]
    json.dumps(data)


def test_room_to_spare_asks_for_nothing() -> None:
    found = advise(draft(with_changes(BASE, [Change("device.memory", 900 * GIB + MIB)])).data, most=1)
    assert found.now.verdict.outcome == "fits"
    assert all(option.saved > 0 for option in found.singles)


def test_room_to_spare_buys_what_still_fits() -> None:
    roomy = [Change("device.memory", 60 * GIB), Change("stack.recompute", {"kind": "full", "reentrant": False})]
    found = advise(draft(with_changes(BASE, roomy)).data, most=1)
    names = [option.taken.name for option in found.spare]
    assert names[0] == "no recompute"
    assert "twice the micro-batch, half the accumulation" in names
    assert all(option.fits for option in found.spare)
    gain = next(cost.amount for cost in found.spare[0].costs if cost.unit.startswith("of "))
    assert gain == pytest.approx(-1 / 3)
    lines = changed_lines(found.spare[0].taken.changes, draft(BASE))
    text = "\n".join(plain(one) for one in sections(found, lambda _: lines, View(), 0) if one.text or one.rows)
    assert "Room to spare" in text
    assert "the forward runs once" in text
    assert not advise(draft(BASE).data, most=1).spare  # what does not fit has no room


def test_a_change_that_breaks_the_program_is_listed_and_takes_no_other_away(monkeypatch: pytest.MonkeyPatch) -> None:
    import trainledger.answer.advise as module

    before = module.draw

    def broken(of):
        if of.plan.optimizer.name == "lion":
            raise AssertionError("no such rule")
        return before(of)

    monkeypatch.setattr(module, "draw", broken)
    found = advise(draft(BASE).data, most=1)
    (one,) = [one for one in found.refused if one.taken.name.startswith("Lion")]
    assert "a defect of the program, please report it: AssertionError no such rule" in one.why
    assert found.singles
