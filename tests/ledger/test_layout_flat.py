"""FSDP1's layout: adapters that it ignores, and which tensors of a quantised layer are flat."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.lines.line import Account

RANK, LAYERS, HIDDEN, FFN = 8, 3, 256, 640
TARGETS = ["q_proj", "v_proj"]
ADAPTERS = LAYERS * RANK * ((HIDDEN + HIDDEN) + (HIDDEN + HIDDEN // 2))


def made(kernels: tuple[str, ...] = (), kind: str | None = "nf4", ranks: int = 2, accumulation: int = 1) -> Estimate:
    given: dict[str, Any] = {"nf4": {"kind": "nf4", "double": True}, "gptq4": {"kind": "gptq4", "group_size": 128}}
    return estimate(
        plan_of(
            adapter={"kind": "lora", "r": RANK, "targets": TARGETS, "dtype": "fp32"},
            quantization=given.get(kind or ""),
            precision={"weights": "bf16", "compute": "bf16", "autocast": True, "gradients": "fp32", "reduce": "bf16"},
            batch={"micro_batch": 1, "sequence": 512, "accumulation": accumulation},
            parallel={"strategy": "fsdp1", "world": ranks, "dp": ranks, "reshard_after_forward": True},
            stack={
                "attention": "flash", "kernels": list(kernels), "recompute": {"kind": "full", "reentrant": True},
                "versions": {
                    "torch": "2.4.1", "transformers": "4.48.1", "peft": "0.13.2", "accelerate": "1.0.1",
                    "bitsandbytes": "0.43.3",
                },
            },
        )
    )  # fmt: skip


def live(found: Estimate, moment: str, account: Account, part: str) -> int:
    lines = found.ledger.lines
    here = next(one.live for one in found.ledger.moments if one.name == moment)
    return sum(lines[at].unit * n for at, n in here if lines[at].account is account and part in lines[at].name)


@pytest.mark.parametrize("ranks", [2, 4])
def test_adapters_that_fsdp_ignores_are_whole_on_every_rank(ranks: int) -> None:
    found = made(("foak",), ranks=ranks)
    assert live(found, "step 2: forward", Account.WEIGHTS, "lora_") == 4 * ADAPTERS
    assert live(found, "step 2: optimizer", Account.OPTIMIZER, "lora_") == 8 * ADAPTERS
    assert live(found, "step 2: optimizer", Account.GRADIENTS, "lora_") == 4 * ADAPTERS
    assert not [line for line in found.ledger.lines if "what is trained of" in line.name]


def test_ignored_gradients_are_there_once_however_many_micro_batches() -> None:
    found = made(("foak",), accumulation=3)
    assert live(found, "step 2: optimizer", Account.GRADIENTS, "lora_") == 4 * ADAPTERS
    assert live(found, "step 2: forward", Account.GRADIENTS, "lora_") == 4 * ADAPTERS  # of the micro-batches before


@pytest.mark.parametrize(("kernels", "kind"), [((), "nf4"), (("foak",), None), (("liger",), "nf4")])
def test_other_runs_shard_their_adapters(kernels: tuple[str, ...], kind: str | None) -> None:
    found = made(kernels, kind)
    assert [line for line in found.ledger.lines if "what is trained of" in line.name]
    # gathered in the compute dtype already, they are not cast again
    assert not [line for line in found.ledger.lines if line.account is Account.CASTS]


def test_ignored_adapters_are_cast_by_autocast() -> None:
    assert [line for line in made(("foak",)).ledger.lines if line.account is Account.CASTS]


def test_zeros_of_gptq_layers_are_flat_with_their_codes() -> None:
    found = made(kind="gptq4")
    beside = {line.name.rpartition(": ")[-1] for line in found.ledger.lines if line.account is Account.WEIGHTS}
    assert {"scales", "g_idx"} <= beside
    assert not {"qweight", "qzeros"} & beside
    square, narrow, wide = HIDDEN * HIDDEN, HIDDEN * HIDDEN // 2, HIDDEN * FFN
    codes = (2 * square + 2 * narrow + 3 * wide) // 2
    flat = live(found, "init", Account.WEIGHTS, "flat parameter of model.layers")
    assert flat >= LAYERS * (codes + codes // 128) // 2
    assert flat <= LAYERS * (codes + codes // 128 + 2 * 2 * HIDDEN + 2**13) // 2
