"""What torchtitan's policy keeps of a layer, and what becomes of it in backward."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import estimate
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.lines.line import Account
from trainledger.model.build import model_of

SEQUENCE, WIDTH, INNER, KEYS = 512, 256, 640, 128
EAGER, CUDNN_KEPT = "5940ddeb532c", "0.2.1"


def ledger(version: str = EAGER, architecture: str = "sm80", **stack: Any) -> Ledger:
    given = {"framework": "torchtitan", "versions": {"torchtitan": version}, "loss": "full-fp32", **stack}
    given.setdefault("recompute", {"kind": "selective", "policy": "op"})
    plan = plan_of(LLAMA, stack=given)
    return rank_ledger(plan, model_of(plan), architecture)


def kept(made: Ledger) -> dict[str, int]:
    """Lines of activations in layers, and their bytes."""
    lines = (one for one in made.lines if one.account is Account.ACTIVATIONS and one.name.startswith("model.layers"))
    return {one.name.removeprefix("model.layers.*."): one.unit for one in lines}


RESIDENT = (Account.WEIGHTS, Account.OPTIMIZER, Account.BUFFERS, Account.INPUTS, Account.WORKSPACE)


def left(made: Ledger) -> set[str]:
    """Lines of which more is born than dies, but for what stays through all steps."""
    alive: Counter[int] = Counter()
    for _, events, repeat, _ in made.segments:
        for event in events:
            alive[abs(event) - 1] += repeat if event > 0 else -repeat
    found = {made.lines[number] for number, count in alive.items() if count}
    return {one.name for one in found if one.account not in RESIDENT}


def test_every_second_product_and_attention_are_kept() -> None:
    found = kept(ledger())
    assert {name: size for name, size in found.items() if "state" not in name and "logsum" not in name} == {
        "self_attn.q_proj: output": 2 * SEQUENCE * WIDTH,
        "self_attn.v_proj: output": 2 * SEQUENCE * KEYS,
        "self_attn.attention: output": 2 * SEQUENCE * WIDTH,
        "mlp.gate_proj: output": 2 * SEQUENCE * INNER,
        "mlp.down_proj: output": 2 * SEQUENCE * WIDTH,
    }


def test_one_layer_of_queries_keys_and_values_counts_once() -> None:
    found = kept(ledger("2026-07-01", recompute={"kind": "selective", "policy": "op"}))
    assert {name: size for name, size in found.items() if name.endswith("output") and "attention" not in name} == {
        "self_attn.q_proj: output": 2 * SEQUENCE * (WIDTH + 2 * KEYS),
        "mlp.gate_proj: output": 2 * SEQUENCE * INNER,
        "mlp.down_proj: output": 2 * SEQUENCE * WIDTH,
    }


def test_products_of_4_bits_are_all_made_again() -> None:
    plan = plan_of(
        LLAMA,
        precision={"compute": "nvfp4"},
        stack={
            "framework": "torchtitan", "versions": {"torchtitan": "2026-07-01"}, "compile": True,
            "recompute": {"kind": "selective", "policy": "op"},
        },
    )  # fmt: skip
    found = kept(rank_ledger(plan, model_of(plan), "sm100"))
    assert {name for name in found if "proj" in name} == set()


def test_compiled_layers_keep_nothing_that_backward_does_not_read() -> None:
    assert set(kept(ledger())) - set(kept(ledger(compile=True))) == {
        "mlp.down_proj: output",
        *(name for name in kept(ledger()) if "random state" in name and name not in kept(ledger(compile=True))),
    }


def test_the_attention_of_cudnn_is_kept_from_a_version_on() -> None:
    assert "self_attn.attention: output" not in kept(ledger("6fc499f6", "sm100"))
    assert "self_attn.attention: output" in kept(ledger(CUDNN_KEPT, "sm100"))


def test_from_a_day_on_cudnns_attention_comes_first_on_every_device() -> None:
    """Its results are kept from a later day on; before the first, flash attention ran, whose results are kept."""
    days = {"2025-10-08": True, "2025-10-09": False, "2025-11-30": False, "2025-12-01": True}
    assert {day: "self_attn.attention: output" in kept(ledger(day, "sm90")) for day in days} == days


def sums(version: str, torch: str, compiled: bool) -> int:
    """How many sums over ranks of tensor parallelism are kept of a layer, of the two that there are."""
    stack = {
        "framework": "torchtitan", "versions": {"torchtitan": version, "torch": torch}, "loss": "vocab-parallel",
        "recompute": {"kind": "selective", "policy": "op"}, "compile": compiled,
    }  # fmt: skip
    plan = plan_of(LLAMA, parallel={"strategy": "fsdp2", "world": 4, "dp": 2, "tp": 2, "sp": True}, stack=stack)
    made = rank_ledger(plan, model_of(plan), "sm80")
    assert left(made) == {"loss"}
    return sum(name.endswith("part of the sum") for name in kept(made))


def test_between_two_releases_compiled_layers_keep_a_sum_that_only_its_wait_reads() -> None:
    assert [sums(EAGER, torch, True) for torch in ("2.4", "2.5", "2.7.1", "2.8")] == [1, 2, 2, 1]
    assert [sums(EAGER, torch, False) for torch in ("2.7", "2.8")] == [2, 2]


def test_for_a_month_no_sum_was_kept() -> None:
    assert [sums(day, "2.8", False) for day in ("2025-03-19", "2025-03-20", "2025-04-20", "2025-04-21")] == [2, 0, 0, 2]


def test_whole_recompute_keeps_the_inputs_alone() -> None:
    assert not kept(ledger(recompute={"kind": "full"}))


def test_what_is_kept_dies_with_its_layers_backward() -> None:
    for recompute in ({"kind": "selective", "policy": "op"}, {"kind": "full"}):
        for compiled in (False, True):
            for version in (EAGER, CUDNN_KEPT):
                made = ledger(version, recompute=recompute, compile=compiled)
                assert left(made) == {"loss"}


def test_the_policy_is_torchtitans_alone() -> None:
    plan = plan_of(LLAMA, stack={"framework": "torchtitan", "versions": {}, "recompute": {"kind": "full"}})
    assert estimate(plan).steps.allocated.expected > 0
