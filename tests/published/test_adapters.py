"""What published runs and papers say of adapters and quantised bases, per token and per parameter."""

from __future__ import annotations

from typing import Any

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of

LORA = {"kind": "lora", "r": 16, "targets": ["q_proj", "k_proj", "v_proj", "o_proj"], "dropout": 0.1}
STACK = {
    "versions": {
        "torch": "2.4.1", "transformers": "4.48.1", "peft": "0.13.2", "accelerate": "1.0.1", "bitsandbytes": "0.43.3",
    },
    "attention": "flash",
    "recompute": {"kind": "full", "reentrant": True},
}  # fmt: skip
SEQUENCE, LAYERS, HIDDEN, VOCAB = 4096, 32, 4096, 32000


def mistral(micro_batch: int, **sections: Any) -> Estimate:
    """Mistral-7B as fms-acceleration's benchmarks fine-tune it."""
    batch = {"micro_batch": micro_batch, "sequence": SEQUENCE}
    plan = {"adapter": LORA, "precision": {"gradients": "fp32"}, "optimizer": {"grad_clip": 1.0}, "stack": STACK}
    return estimate(plan_of("mistral-7b-v0.1", batch=batch, **{**plan, **sections}))


def growth(**sections: Any) -> float:
    """Bytes that each token adds to the peak."""
    less, more = (mistral(size, **sections).steps.allocated.expected for size in (4, 8))
    return (more - less) / (4 * SEQUENCE)


def test_a_token_of_lora_costs_what_was_measured() -> None:
    """Kept layer inputs 2 L h, logits and loss 14 V, the last hidden states 6 h; measured: 734,762 B."""
    assert 2 * LAYERS * HIDDEN + 14 * VOCAB + 6 * HIDDEN == 734_720
    assert abs(growth() - 734_720) < 64
    assert abs(growth() - 734_762) < 64


NF4 = {"kind": "nf4", "double": True}


def quantised(weights: str, norms: str | None = None) -> float:
    precision = {"weights": weights, "compute": "bf16", "autocast": True, "gradients": "fp32", "norms": norms}
    return growth(quantization=NF4, precision=precision)


def test_a_quantised_base_moves_no_bytes_of_a_token() -> None:
    assert quantised("bf16") == growth()


def test_kbit_preparation_keeps_layer_inputs_in_fp32() -> None:
    """2 L h more of each token, 262,144 B on Mistral-7B; and the last norm's result in fp32, which lives to the end."""
    assert 2 * LAYERS * HIDDEN == 262_144
    assert quantised("fp32") - quantised("bf16") == 262_144 + 2 * HIDDEN


def test_norms_in_fp32_keep_all_but_the_first_input_so() -> None:
    assert quantised("bf16", "fp32") - quantised("bf16") == 2 * (LAYERS - 1) * HIDDEN + 2 * HIDDEN


def test_bits_of_a_quantised_parameter() -> None:
    """QLoRA, section 3: absmax of 64 in fp32 is 0.5 bits more; in 8 bits with a second level of 256, 0.127."""
    for double, bits in ((False, 4.5), (True, 4 + 8 / 64 + 32 / (64 * 256))):
        found = mistral(1, quantization={"kind": "nf4", "double": double})
        lines = [
            line for line in found.ledger.lines if "mlp.up_proj.weight: " in line.name and "as loaded" not in line.name
        ]
        names = ("packed", "absmax", "quantised absmax", "absmax of scales")
        stored = [line for line in lines if line.account == "weights" and line.name.rpartition(": ")[2] in names]
        assert sum(line.unit for line in stored) * 8 == 4096 * 14336 * bits


def test_states_of_adapters() -> None:
    """fp32: 4 of weights, 4 of gradients and 8 of moments a parameter; 13,631,488 of them on four projections."""
    found = mistral(1)
    assert found.parameters.trainable == 13_631_488
    sizes = states_of(found.ledger)
    assert sizes["gradients"] + sizes["optimizer_states"] == 12 * found.parameters.trainable
