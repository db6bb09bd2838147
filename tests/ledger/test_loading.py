"""Building a quantised model: one matrix at a time lies whole on the device, and k-bit preparation casts the rest."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate

LORA = {"kind": "lora", "r": 8, "targets": "all-linear", "dtype": "fp32"}
WIDE = {**LLAMA, "vocab_size": 256}  # the feed-forward's matrices are the largest


def answer(quantization: dict[str, Any] | None, weights: str = "bf16", **more: Any) -> Estimate:
    precision = {"weights": weights, "compute": "bf16", "autocast": True, "gradients": "fp32"}
    stack = {"versions": more.pop("versions", {}), "options": more.pop("options", {})}
    adapter = {**LORA, **more}
    return estimate(plan_of(WIDE, adapter=adapter, quantization=quantization, precision=precision, stack=stack))


def names(found: Estimate) -> list[str]:
    """Lines in the order in which they come to be while the model is built; "empty": the cache is given back."""
    lines, events = found.ledger.lines, [one.events for one in found.ledger.segments if one.moment == "init"]
    return [lines[event - 1].name if event else "empty" for group in events for event in group if event >= 0]


def built(found: Estimate) -> tuple[int, int]:
    """The most that lives while the model is built, and what lives when it is."""
    now = most = 0
    lines = found.ledger.lines
    for moment, events, repeat, _ in found.ledger.segments:
        if moment != "init":
            break
        for _ in range(repeat):
            for event in events:
                now += lines[event - 1].unit if event > 0 else -lines[-event - 1].unit
                most = max(most, now)
    return most, now


@pytest.mark.parametrize(
    "quantization", [{"kind": "nf4"}, {"kind": "nf4", "double": True}, {"kind": "fp4"}, {"kind": "int8"}]
)
def test_the_parameters_that_stay_are_those_of_the_ledger(quantization: dict[str, Any]) -> None:
    """Whatever was made on the way is gone, and the moment counts no more than what lived at once."""
    found = answer(quantization)
    most, left = built(found)
    init = next(one for one in found.ledger.moments if one.name == "init")
    assert init.allocated == most >= left
    names = {found.ledger.lines[at].name for at, _ in found.ledger.moments[-1].live}
    assert not [name for name in names if "as loaded" in name or "centred" in name]


def test_kbit_preparation_holds_a_parameter_twice_for_a_moment() -> None:
    found = answer({"kind": "nf4"}, weights="fp32")
    lines = [line for line in found.ledger.lines if line.name == "model.embed_tokens.weight, as loaded"]
    assert [line.dtype.name for line in lines] == ["bf16"]
    kept = [line for line in found.ledger.lines if line.name == "model.embed_tokens.weight"]
    assert [line.dtype.name for line in kept] == ["fp32"]


def test_other_kinds_are_loaded_as_they_are_stored() -> None:
    for kind in ("gptq4", "awq4"):
        most, left = built(answer({"kind": kind}))
        assert most == left


def test_kbit_preparation_gives_the_cache_back_since_peft_020() -> None:
    """Once everything is raised, and before adapters are made; a base that nothing is raised in is not prepared."""
    for release, empties in (("0.19.1", False), ("0.20.0", True), ("", True)):
        found = names(answer({"kind": "nf4"}, "fp32", versions={"peft": release} if release else {}))
        assert ("empty" in found) is empties
    assert found.index("lm_head.weight") < found.index("empty")
    assert not any("lora" in name for name in found[: found.index("empty")])
    assert "empty" not in names(answer({"kind": "nf4"}, versions={"peft": "0.21.2"}))


MADE = "model.layers.*.self_attn.q_proj.lora_A.default.weight"


def test_a_script_makes_adapters_after_the_base_in_its_dtype_and_then_casts_them() -> None:
    found = names(answer(None))
    raw = found.index(f"{MADE}, as made")
    assert found.index("lm_head.weight") < raw < found.index(MADE)
    assert found.index("model.layers.*.mlp.down_proj.lora_B.default.weight, as made") < found.index(MADE)
    most, left = built(answer(None))
    assert most > left


def test_the_trainer_moves_adapters_with_their_layers() -> None:
    trainer = {"transformers": "5.24.0", "peft": "0.21.2", "accelerate": "1.15.0"}
    found = names(answer(None, versions=trainer))
    assert f"{MADE}, as made" not in found
    assert found.index(MADE) < found.index("lm_head.weight")
    placed = names(answer(None, versions=trainer, options={"device_map": "auto"}))
    assert f"{MADE}, as made" in placed


def test_adapters_that_keep_the_dtype_of_the_base_are_not_cast() -> None:
    assert not [name for name in names(answer(None, dtype="bf16")) if "as made" in name]
    assert not [name for name in names(answer(None, "fp32")) if "as made" in name]


@pytest.mark.parametrize(
    ("kind", "release", "cast"),
    [("nf4", "0.19.0", True), ("nf4", "0.18.1", False), ("int8", "0.21.2", False), ("fp8", "0.21.2", True)],
)
def test_adapters_of_quantised_layers_are_made_in_what_their_products_are_made_in(
    kind: str, release: str, cast: bool
) -> None:
    found = answer({"kind": kind}, versions={"peft": release})
    raw = [line for line in found.ledger.lines if line.name == f"{MADE}, as made"]
    assert bool(raw) is cast
    assert not cast or raw[0].dtype.name == ("fp8" if kind == "fp8" else "bf16")


def test_biases_of_4_bit_layers_are_cast_for_good_as_these_first_run() -> None:
    """K-bit preparation raises them; bitsandbytes' layers cast them back since 0.50, before, for each product anew."""
    biased = {**WIDE, "attention_bias": True}
    precision = {"weights": "fp32", "compute": "bf16", "autocast": True, "gradients": "fp32"}

    def dtypes(release: str, kind: str = "nf4") -> list[str]:
        stack = {"versions": {"bitsandbytes": release}}
        plan = plan_of(biased, adapter=LORA, quantization={"kind": kind}, precision=precision, stack=stack)
        lines = estimate(plan).ledger.lines
        return [line.dtype.name for line in lines if line.name == "model.layers.*.self_attn.q_proj.bias"]

    assert dtypes("0.50.2") == ["bf16"]
    assert dtypes("0.49.2") == dtypes("0.50.2", "int8") == ["fp32"]


def test_dora_makes_the_adapted_weight_for_its_norms_as_a_script_builds() -> None:
    """The product of both factors takes cuBLAS's workspace, which stays; none is taken again in the first step."""
    found = answer(None, kind="dora")
    order = names(found)
    product = next(at for at, name in enumerate(order) if name.endswith("product of factors"))
    assert order[product + 1] == "cuBLAS workspace of one thread"
    assert [name.rpartition(": ")[2] for name in order[product + 2 : product + 4]] == [
        "scaled product",
        "adapted weight",
    ]
    assert order[product + 4].endswith("lora_magnitude_vector.default.weight, as made")
    lines = found.ledger.lines
    work = next(at for at, line in enumerate(lines) if line.name == "cuBLAS workspace of one thread") + 1
    assert sum(one.events.count(work) for one in found.ledger.segments if one.moment.endswith("step 1: forward")) == 0
    left = {lines[at].name for at, _ in found.ledger.moments[-1].live}
    assert not [name for name in left if "product" in name or "adapted weight" in name]
