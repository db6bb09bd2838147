"""Formula and trace of plans with an adapter: the largest instant of every phase of every step."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("peft")

from tests.evidence.trace.families import FAMILIES, RECOMPUTE
from tests.plans import plan_of
from tests.witness.steps import phases
from trainledger.allocator.conf import read_conf
from trainledger.answer.estimate import estimate
from trainledger.answer.trace import job_of
from trainledger.evidence.trace.lines import trace_of
from trainledger.evidence.trace.live.plan_run import run_plan
from trainledger.evidence.trace.live.session import where_of
from trainledger.plan.schema import Plan

CLOSE = 3e-3
LORA = {"kind": "lora", "r": 16}
TARGETS: dict[str, Any] = {
    "llama": ["q_proj", "v_proj"], "qwen2": "all-linear", "gemma2": r".*\.(gate|up|down)_proj", "phi3": ["qkv_proj"],
    "gpt2": ["c_attn", "c_proj"], "gpt_neox": ["query_key_value"], "opt": "all-linear", "olmo2": ["o_proj"],
    "bert": ["query", "value", "dense"], "deepseek_v2": ["q_proj", "kv_a_proj_with_mqa"],
    "deepseek_v3": ["q_b_proj", "kv_b_proj", "o_proj"],
}  # fmt: skip
ADAPTERS: dict[str, dict[str, Any]] = {
    "fp32": {**LORA, "dtype": "fp32"},
    "bf16": {**LORA, "dtype": "bf16", "dropout": 0.1},
    "dropout": {**LORA, "dtype": "fp32", "dropout": 0.05},
    "dora": {**LORA, "kind": "dora", "dtype": "fp32"},
    "dora-dropout": {**LORA, "kind": "dora", "dtype": "fp32", "dropout": 0.05},
}
PRECISIONS = {
    "bf16": {"weights": "bf16", "compute": "bf16", "autocast": False},
    "autocast": {"weights": "bf16", "compute": "bf16", "autocast": True},
    "fp32": {"weights": "fp32", "compute": "bf16", "autocast": True},
}


def cases() -> list[tuple[str, str, str, str]]:
    """Family, adapter, precision, recompute: every pair of the first three, recompute in turn."""
    every = [(family, adapter, precision) for family in TARGETS for adapter in ADAPTERS for precision in PRECISIONS]
    chosen = [one for number, one in enumerate(every) if number % 4 == 0]
    return [(*one, list(RECOMPUTE)[number % len(RECOMPUTE)]) for number, one in enumerate(chosen)]


# those that run without values: BOFT reads one, AdaLoRA adds a loss of its own
METHODS: dict[str, dict[str, Any]] = {
    "ia3": {"options": {"feedforward_modules": ["down_proj"]}, "targets": ["k_proj", "v_proj", "down_proj"]},
    "vera": {"r": 32},
    "loha": {"r": 8},
    "lokr": {"r": 8},
    "oft": {},
    "fourierft": {"options": {"n_frequency": 500}},
    "prompt-tuning": {"options": {"num_virtual_tokens": 32}},
    "p-tuning": {"options": {"num_virtual_tokens": 16, "encoder_hidden_size": 1024}},
    "prefix-tuning": {"options": {"num_virtual_tokens": 32}},
    "trainable-tokens": {"targets": ["embed_tokens"], "options": {"token_indices": [1, 5, 7]}},
    "ln-tuning": {"targets": ["input_layernorm", "norm"], "dtype": "bf16"},
}


def compared(plan: Plan) -> dict[tuple[str, str], float]:
    """Errors beyond the tolerance, by step and phase."""
    conf = read_conf(plan.stack.allocator)
    ours = phases(estimate(plan).ledger.moments)
    real = phases(trace_of(run_plan(plan, where_of(job_of(plan))), conf=conf).moments)
    assert set(ours) == set(real)
    return {name: ours[name] / size - 1 for name, size in real.items() if abs(ours[name] / size - 1) > CLOSE}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("kind", "recompute"),
    [(kind, how) for kind in METHODS for how in RECOMPUTE if (kind, how) != ("prefix-tuning", "full")],
)
def test_other_methods_agree(kind: str, recompute: str) -> None:
    adapter = {"kind": kind, "targets": ["q_proj", "v_proj"], "dtype": "fp32", **METHODS[kind]}
    plan = plan_of(
        FAMILIES["llama"],
        adapter=adapter,
        precision={**PRECISIONS["bf16"], "gradients": adapter["dtype"]},
        batch={"micro_batch": 2, "sequence": 512, "accumulation": 1},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2"},
            "recompute": RECOMPUTE[recompute],
            "allocator": {"expandable_segments": True},
        },
    )
    assert not compared(plan)


SMALL = {
    "model_type": "llama", "hidden_size": 256, "num_hidden_layers": 3, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 512, "intermediate_size": 640,
}  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("dtype", "precision"), [("bf16", "bf16"), ("fp32", "autocast"), ("fp32", "fp32")])
@pytest.mark.parametrize("kind", ["oft", "fourierft", "vera", "lokr"])
def test_methods_agree_in_any_dtype(kind: str, dtype: str, precision: str) -> None:
    """To the byte: with factors in 16 bits, and with products that autocast casts."""
    plan = plan_of(
        SMALL,
        adapter={"kind": kind, "targets": ["q_proj", "v_proj"], "dtype": dtype, **METHODS[kind]},
        precision={**PRECISIONS[precision], "gradients": dtype},
        batch={"micro_batch": 2, "sequence": 256, "accumulation": 1},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2"},
            "allocator": {"expandable_segments": True},
        },
    )
    conf = read_conf(plan.stack.allocator)
    ours = phases(estimate(plan).ledger.moments)
    assert ours == phases(trace_of(run_plan(plan, where_of(job_of(plan))), conf=conf).moments)


@pytest.mark.filterwarnings("ignore")
def test_the_cast_of_a_detached_input_stays_until_autocast_is_left() -> None:
    """A reentrant checkpoint's input is a leaf, whose cast autocast caches, though no frozen layer saves it."""
    plan = plan_of(
        {**FAMILIES["bert"], "vocab_size": 128},
        adapter={"kind": "lora", "r": 16, "targets": ["query"], "dtype": "bf16", "dropout": 0.1},
        precision={**PRECISIONS["fp32"], "gradients": "bf16"},
        batch={"micro_batch": 32, "sequence": 384, "accumulation": 1},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2"},
            "recompute": {"kind": "full", "reentrant": True},
            "allocator": {"expandable_segments": True},
        },
    )
    conf = read_conf(plan.stack.allocator)
    real = phases(trace_of(run_plan(plan, where_of(job_of(plan))), conf=conf).moments)
    ours = phases(estimate(plan).ledger.moments)
    assert ours["step 2", "backward"] == real["step 2", "backward"]


@pytest.mark.filterwarnings("ignore")
def test_doras_identity_matrix_stays_until_both_factors_are_multiplied() -> None:
    """Under autocast it is cast, and a name holds it beside the copy that is read."""
    plan = plan_of(
        {**FAMILIES["llama"], "intermediate_size": 8192, "vocab_size": 128},
        adapter={"kind": "dora", "r": 16, "targets": ["down_proj"], "dtype": "fp32"},
        precision={**PRECISIONS["fp32"], "gradients": "fp32"},
        batch={"micro_batch": 1, "sequence": 64, "accumulation": 1},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2"},
            "allocator": {"expandable_segments": True},
        },
    )
    assert not compared(plan)


PROJECTED = {"prefix_projection": True, "encoder_hidden_size": 128}
# family, attention, precision, sequences, options: kernels that leave gradients in either order, fused and split
# projections, keys that turn and that do not, windows, a cast of values, a network before the table
PREFIXES: list[tuple[str, str, str, int, dict[str, Any]]] = [
    ("llama", "eager", "autocast", 2, {}),
    ("qwen2", "mem-efficient", "autocast", 1, PROJECTED),
    ("gpt2", "sdpa", "bf16", 2, {}),
    ("opt", "sdpa", "bf16", 2, {}),
    ("gpt_neox", "sdpa", "fp32", 2, {}),
    ("phi3", "flash", "bf16", 2, {}),
    ("gemma3_text", "sdpa", "fp32", 2, PROJECTED),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "attention", "precision", "sequences", "options"), PREFIXES)
def test_prefixes_agree(family: str, attention: str, precision: str, sequences: int, options: dict[str, Any]) -> None:
    plan = plan_of(
        FAMILIES[family],
        adapter={"kind": "prefix-tuning", "dtype": "fp32", "options": {"num_virtual_tokens": 48, **options}},
        precision={**PRECISIONS[precision], "gradients": "fp32"},
        batch={"micro_batch": sequences, "sequence": 256, "accumulation": 1},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2"},
            "attention": attention,
            "allocator": {"expandable_segments": True},
        },
    )
    assert not compared(plan)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("family", "adapter", "precision", "recompute"), cases())
def test_formula_and_trace_agree(family: str, adapter: str, precision: str, recompute: str) -> None:
    given = ADAPTERS[adapter]
    plan = plan_of(
        FAMILIES[family],
        adapter={**given, "targets": TARGETS[family]},
        precision={**PRECISIONS[precision], "gradients": given["dtype"]},
        batch={"micro_batch": 2, "sequence": 512, "accumulation": 1},
        stack={
            "versions": {"torch": "2.13.0", "transformers": "5.24.0", "peft": "0.21.2"},
            "recompute": RECOMPUTE[recompute],
            "attention": "eager" if family == "gemma2" else "sdpa",
            "allocator": {"expandable_segments": True},
        },
    )
    assert not compared(plan)
