"""Reference models beside a trained one: their weights, when their forwards run, and what these leave."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.lines.line import Account

TRL: dict[str, Any] = {
    "versions": {
        "torch": "2.14.1",
        "transformers": "5.24.0",
        "trl": "1.16.0",
        "accelerate": "1.15.0",
        "peft": "0.21.2",
    },
    "loss": "fused-linear",
}
LORA = {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "bf16"}
CHAT = {"framework": "colossalai", "versions": {}, "attention": "flash"}
ZERO2 = {"parallel": {"strategy": "zero2", "dp": 2}, "precision": {"master": "fp32", "reduce": "bf16"}}


def dpo(task: str = "dpo", options: dict[str, Any] | None = None, **sections: Any) -> Estimate:
    return estimate(plan_of(task=task, stack={**TRL, "options": options or {}}, **sections))


def chat(task: str, **sections: Any) -> Estimate:
    return estimate(plan_of(task=task, stack=CHAT, **ZERO2, **sections))


def named(found: Estimate, word: str, account: Account | None = None) -> list[int]:
    return [one.unit for one in found.ledger.lines if word in one.name and account in (None, one.account)]


def weights(found: Estimate) -> int:
    return states_of(found.ledger)["weights"]


def test_a_reference_model_is_a_second_copy_of_the_weights() -> None:
    assert weights(dpo()) == 2 * weights(dpo("sft"))


@pytest.mark.parametrize(
    ("sections", "copies"),
    [
        ({"options": {"precompute_ref_log_probs": True}}, 1),
        ({"options": {"precompute_ref_log_probs": True, "ref_model": "given"}}, 2),
        ({"task": "kto"}, 2),
    ],
)
def test_whether_it_stays_is_what_the_options_say(sections: dict[str, Any], copies: int) -> None:
    assert weights(dpo(**sections)) == copies * weights(dpo("sft"))


def test_an_adapter_serves_as_its_own_reference() -> None:
    assert weights(dpo(adapter=LORA)) == weights(dpo("sft", adapter=LORA))
    assert named(dpo(adapter=LORA), "reference: ", Account.FORWARD)


def test_log_probabilities_are_computed_in_each_micro_batch_or_once_ahead() -> None:
    inside = [one.name for one in dpo().ledger.moments]
    ahead = [one.name for one in dpo(options={"precompute_ref_log_probs": True}).ledger.moments]
    assert "step 2: reference" in inside
    assert "reference" not in inside
    assert ahead[:2] == ["init", "reference"]
    assert not any("step" in name and "reference" in name for name in ahead)


def test_a_pass_without_gradients_leaves_nothing_behind() -> None:
    found = dpo()
    left: dict[int, int] = {}
    for segment in found.ledger.segments:
        if segment.moment.endswith("reference"):
            for event in segment.events * segment.repeat:
                if found.ledger.lines[abs(event) - 1].name.startswith("reference: "):
                    left[abs(event)] = left.get(abs(event), 0) + (1 if event > 0 else -1)
    assert left
    assert not any(left.values())


def test_only_tokens_that_count_reach_the_fused_head() -> None:
    few, all_of_them = (dpo(batch={"micro_batch": 2, "loss_tokens": count}) for count in (64, 512))
    assert max(named(few, "logits of a tile")) * 7 < max(named(all_of_them, "logits of a tile"))


def test_the_chat_trainers_reference_gathers_keys_and_values() -> None:
    found = chat("dpo")
    heads = LLAMA["num_key_value_heads"] * LLAMA["hidden_size"] // LLAMA["num_attention_heads"]
    one = 2 * 512 * heads * 2  # both sequences, in 16 bits
    assert named(found, "reference: model.layers.*.keys in the cache") == [one]
    assert named(found, "reference: model.layers.*.values in the cache") == [one]
    assert not named(dpo(), "in the cache")  # TRL asks for none


def test_the_chat_trainers_name_the_logits_of_every_pass() -> None:
    found = chat("kto")
    backward = next(one for one in found.ledger.moments if one.name == "step 2: backward of the loss")
    copies = {found.ledger.lines[line].name: count for line, count in backward.live}
    assert copies["reference: logits"] == 2  # of the sequences, and of those that estimate the divergence
    assert copies["policy: logits"] == 1
    assert copies["logits"] == 1


def test_under_fsdp_the_reference_is_one_unit() -> None:
    parallel = {"strategy": "fsdp2", "dp": 4}
    found = dpo(parallel=parallel, precision={"reduce": "bf16"})
    moment = next(one for one in found.ledger.moments if one.name == "step 1: reference")
    gathered = sum(
        found.ledger.lines[line].unit * count
        for line, count in moment.live
        if found.ledger.lines[line].name.startswith("reference: ")
        and found.ledger.lines[line].account is Account.GATHERED
    )
    assert gathered >= weights(dpo("sft"))  # all of it at once
    assert weights(found) == pytest.approx(2 * weights(dpo("sft")) / 4, rel=0.05)


READ = {"loss": "full-fp32", "versions": {**TRL["versions"], "trl": "1.6.0"}}


def read(release: str, task: str = "dpo", **sections: Any) -> Estimate:
    stack = {**READ, "versions": {**READ["versions"], "trl": release}}
    return estimate(plan_of(task=task, stack=stack, batch={"micro_batch": 2, "loss_tokens": 128}, **sections))


def copies(found: Estimate, moment: str, name: str) -> int:
    there = next(one for one in found.ledger.moments if one.name == moment)
    return sum(count for line, count in there.live if found.ledger.lines[line].name == name)


@pytest.mark.parametrize(("release", "held"), [("0.11.4", True), ("0.28.0", False), ("1.6.0", True)])
def test_a_loss_function_holds_the_references_logits_until_it_returns(release: str, held: bool) -> None:
    found = read(release)
    ours = [one.name for one in found.ledger.lines]
    assert ("reference: logits" in ours) is held
    assert not copies(found, "step 2: backward of the loss", "reference: logits")


def test_hidden_states_of_all_layers_are_among_the_outputs() -> None:
    few, all_of_them = (
        copies(read(release), "step 2: reference", "reference: hidden states") for release in ("0.18.2", "0.28.0")
    )
    assert few < all_of_them == LLAMA["num_hidden_layers"]


def test_a_reference_under_fsdp1_is_in_the_policys_units() -> None:
    found = read("0.24.0", parallel={"strategy": "fsdp1", "dp": 4}, precision={"reduce": "bf16"})
    lines = found.ledger.lines
    live = {lines[number].name for moment in found.ledger.moments for number, _ in moment.live}
    units = {name for name in live if name.startswith("reference: gathered weights")}
    assert units == {"reference: gathered weights of the root", "reference: gathered weights of model.layers"}
    assert weights(found) == pytest.approx(2 * weights(dpo("sft")) / 4, rel=0.05)


def test_logits_of_the_tokens_that_count_only() -> None:
    versions = {**TRL["versions"], "ms-swift": "4.6"}
    stacks = (
        {"versions": versions, "loss": "full-fp32", "options": {"use_logits_to_keep": on}} for on in (True, False)
    )
    few, every = (
        max(named(estimate(plan_of(task="dpo", stack=one, batch={"loss_tokens": 64})), "lm_head: output"))
        for one in stacks
    )
    assert few * 512 == every * 65


def test_the_share_of_the_chosen_likelihood_may_be_none() -> None:
    def named_of(options: dict[str, Any]) -> set[str]:
        stack = {"versions": {**TRL["versions"], "trl": "1.16.0"}, "loss": "full-fp32", "options": options}
        return {one.name for one in estimate(plan_of(task="simpo", stack=stack)).ledger.lines}

    assert any("log-probabilities of the chosen" in name for name in named_of({}))
    assert not any("log-probabilities of the chosen" in name for name in named_of({"cpo_alpha": 0.0}))


def test_what_is_read_ahead_may_come_in_larger_batches() -> None:
    """Of examples, as a micro-batch is; where nothing is read ahead they say nothing."""
    versions = {**TRL["versions"], "trl": "0.24.0"}

    def read(**options: object) -> int:
        stack = {"versions": versions, "loss": "full-fp32", "options": {"ref_model": "given", **options}}
        found = estimate(plan_of(task="dpo", stack=stack)).ledger
        return max(one.allocated for one in found.moments if one.name.endswith("reference"))

    one, eight = (read(precompute_ref_log_probs=True, precompute_ref_batch_size=many) for many in (1, 8))
    logits = 2 * 512 * LLAMA["vocab_size"] * 2  # of a pair, in 16 bits
    assert read(precompute_ref_log_probs=True) == one
    assert eight - one > 7 * logits
    assert read(precompute_ref_batch_size=8) == read()
