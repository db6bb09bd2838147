"""Quantised bases under what spreads weights: codes are divided, scales and buffers are whole on every rank."""

from __future__ import annotations

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.base.dims import elements
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.lines.line import Account
from trainledger.model.build import model_of
from trainledger.plan.resolve import resolve

RANKS = 4
LORA = {"kind": "lora", "r": 8, "targets": "all-linear", "dtype": "bf16"}
WHOLE = {"stage3_max_live_parameters": 0, "stage3_max_reuse_distance": 0, "stage3_prefetch_bucket_size": 0}


def ledger(strategy: str, kind: str, world: int = RANKS) -> Ledger:
    options = WHOLE if strategy == "zero3" else {}
    parallel = {"strategy": strategy, "world": world, "options": options}
    stack = {"versions": {"accelerate": "1.6.0"}}
    plan, _ = resolve(plan_of(LLAMA, adapter=LORA, quantization={"kind": kind}, parallel=parallel, stack=stack))
    return rank_ledger(plan, model_of(plan), "sm80")


def packed(found: Ledger, moment: str = "step 2: forward") -> dict[str, int]:
    """Bytes of the tensors of quantised weights that live through a moment, by their names' ends."""
    live = next(one for one in found.moments if one.name == moment)
    sizes: dict[str, int] = {}
    for number, count in live.live:
        line = found.lines[number]
        if line.account is Account.WEIGHTS and ".weight: " in line.name:
            name = line.name.rpartition(": ")[-1]
            sizes[name] = sizes.get(name, 0) + line.dtype.bytes_of(elements(line.dims)) * count
    return sizes


@pytest.mark.parametrize("kind", ["nf4", "gptq4", "awq4"])
@pytest.mark.parametrize("strategy", ["zero1", "zero2"])
def test_stages_1_and_2_keep_a_quantised_base_as_one_device_does(strategy: str, kind: str) -> None:
    assert packed(ledger(strategy, kind)) == packed(ledger("none", kind, 1))


@pytest.mark.parametrize("strategy", ["zero3", "fsdp2"])
def test_codes_are_divided_and_scales_are_not(strategy: str) -> None:
    whole, found = packed(ledger("none", "nf4", 1)), ledger(strategy, "nf4")
    part = packed(found)
    codes = whole.pop("packed")
    parts = part.pop("packed", 0)
    if strategy == "zero3":  # whose parts have names of their own
        live = next(one for one in found.moments if one.name == "step 2: forward")
        lines = ((found.lines[number], count) for number, count in live.live)
        parts = sum(elements(one.dims) * n for one, n in lines if one.dtype.name == "uint8" and "part of" in one.name)
    assert part == whole
    assert parts == pytest.approx(codes / RANKS, rel=1e-3)


@pytest.mark.parametrize("strategy", ["zero3", "fsdp2"])
@pytest.mark.parametrize("kind", ["gptq4", "awq4"])
def test_weights_in_buffers_are_whole_on_every_rank(strategy: str, kind: str) -> None:
    assert packed(ledger(strategy, kind)) == packed(ledger("none", kind, 1))


@pytest.mark.parametrize("strategy", ["zero3", "fsdp2"])
def test_what_is_gathered_of_a_quantised_layer_is_its_codes(strategy: str) -> None:
    """Half a byte of each weight in place of two."""
    sizes = {}
    for kind in ("nf4", "gptq4"):
        found = ledger(strategy, kind)
        lines = [one for one in found.lines if one.account is Account.GATHERED and "q_proj.weight (whole)" in one.name]
        sizes[kind] = {one.dtype.bytes_of(elements(one.dims)) for one in lines}
    assert sizes == {"nf4": {256 * 256 // 2}, "gptq4": set()}


def test_the_offloaded_codes_of_fsdp2_lie_in_the_host_and_scales_on_the_device() -> None:
    parallel = {"strategy": "fsdp2", "world": RANKS}
    plan, _ = resolve(plan_of(LLAMA, adapter=LORA, quantization={"kind": "nf4"}, parallel=parallel,
                              offload={"params": "cpu", "optimizer": "cpu"}))  # fmt: skip
    found = rank_ledger(plan, model_of(plan), "sm80")
    assert "packed" not in packed(found)
    assert packed(found) == {name: size for name, size in packed(ledger("none", "nf4", 1)).items() if name != "packed"}
    codes = [line for line, _ in found.host if line.name.endswith("q_proj.weight") and line.dtype.name == "uint8"]
    assert {elements(line.dims) for line in codes} == {256 * 256 // 2 // RANKS}


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_the_fullest_rank_may_be_the_one_with_the_heads_gradient(recompute: str) -> None:
    shape = {"hidden_size": 512, "intermediate_size": 1792, "num_attention_heads": 8, "num_hidden_layers": 8}
    options = {"reduce_bucket_size": 7_812_500, "overlap_comm": True, "contiguous_gradients": True}
    stack = {"framework": "deepspeed", "versions": {"deepspeed": "0.19.2"}, "recompute": recompute}
    given = plan_of(
        {**LLAMA, **shape, "vocab_size": 16032},
        batch={"micro_batch": 1, "sequence": 512},
        parallel={"strategy": "zero2", "world": RANKS, "options": options},
        stack={**stack, "loss": "fused-linear", "kernels": ["liger"]},
    )
    plan, _ = resolve(given)
    shown = rank_ledger(plan, model_of(plan), "sm80")
    each = [rank_ledger(plan, model_of(plan), "sm80", rank) for rank in range(RANKS)]
    peaks = [max(one.allocated for one in found.moments) for found in each]
    assert max(one.allocated for one in shown.moments) == max(peaks)
    assert recompute == "full" or shown.rank == peaks.index(max(peaks)) == RANKS - 1
    assert any(shown.rank in run for stretch in shown.equals for run in stretch)
