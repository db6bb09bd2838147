"""What adapters keep and make, in bytes, on one linear layer; and what freezing removes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.base.dims import Axis, Dim
from trainledger.facts.dtypes import BF16, FP32, DType
from trainledger.facts.peft import DENSE
from trainledger.ledger.adapters import Call, Low, linear
from trainledger.ledger.nn import linear as plain
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward

TOKENS, IN, OUT, RANK = 4096, 1024, 2048, 16
NEWEST, OLD = "0.21.2", "0.8.2"


def kept(adapter: DType, dropout: float = 0, release: str = NEWEST, autocast: bool = False, dora: bool = False) -> int:
    """Bytes that autograd keeps of a frozen bf16 layer with an adapter, beyond its result: input and weight are not
    the tape's own."""
    tape = Tape(BF16 if autocast else None)
    tokens, inner, outer = (Axis(Dim.TOKENS, TOKENS),), Axis(Dim.COLUMNS, IN), Axis(Dim.ROWS, OUT)
    rank = Axis(Dim.RANK, RANK)
    x = tape.outside((*tokens, inner), BF16, True)
    weight = tape.outside((outer, inner), BF16, False)
    low = Low(
        tape.outside((rank, inner), adapter, True),
        tape.outside((outer, rank), adapter, True),
        None,
        tape.outside((outer,), adapter, True) if dora else None,
    )
    call = Call(x, tokens, (outer,), low, dropout, DENSE, release, weight)
    out = linear(tape, lambda value: plain(tape, value, (*tokens, outer), weight), call)
    held = run_forward(tape, frozenset({out}), saving=True).held
    return sum(tape.storages[storage].size for storage in held if storage != EXTERNAL)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        ({"adapter": BF16}, 2 * RANK),
        ({"adapter": BF16, "dropout": 0.1}, (2 + 1) * IN + 2 * RANK),
        ({"adapter": FP32}, 4 * IN + 4 * RANK),
        ({"adapter": FP32, "dropout": 0.1}, (4 + 1) * IN + 4 * RANK),
        ({"adapter": FP32, "release": OLD}, 4 * IN + 4 * RANK),
        ({"adapter": FP32, "dora": True}, 2 * OUT + 4 * IN + 4 * RANK + 4 * OUT),
    ],
)
def test_bytes_that_are_kept_of_each_token(case: dict[str, Any], expected: int) -> None:
    rows = 3 * 4 * OUT if case.get("dora") else 0  # the norms, their ratio, and that less one
    assert kept(**case) == TOKENS * expected + rows


def test_under_autocast_a_second_cast_is_kept() -> None:
    """PEFT casts the input up, autocast casts it down again; the cast factors are the cache's."""
    assert kept(FP32, autocast=True) == TOKENS * (2 * IN + 2 * RANK) + 2 * RANK * (IN + OUT)


def test_what_a_layer_is_handed_lives_until_it_returns() -> None:
    """Under autocast `lora_A(dropout(x))` casts what was dropped from, which no other name holds, and makes its result
    while both live."""
    tape = Tape(BF16)
    tokens, inner, rank = (Axis(Dim.TOKENS, TOKENS),), Axis(Dim.COLUMNS, IN), Axis(Dim.RANK, RANK)
    x, outer = tape.outside((*tokens, inner), FP32, True), Axis(Dim.ROWS, OUT)
    low = Low(tape.outside((rank, inner), FP32, True), tape.outside((outer, rank), FP32, True), None, None)
    weight = tape.outside((outer, inner), BF16, False)
    call = Call(x, tokens, (outer,), low, 0.1, DENSE, NEWEST, weight)
    out = linear(tape, lambda value: plain(tape, value, (*tokens, outer), weight), call)
    events = run_forward(tape, frozenset({out}), saving=True).events
    made = [tape.storages[abs(event) - 1] for event in events]
    (dropped,) = {one for one, of in zip(events, made, strict=True) if of.name.endswith(": dropout") and one > 0}
    (narrow,) = {one for one, of in zip(events, made, strict=True) if of.size == 2 * TOKENS * RANK and one > 0}
    assert made[events.index(dropped)].size == 4 * TOKENS * IN
    assert events.index(dropped) < events.index(narrow) < events.index(-dropped)


def test_dora_with_dropout_keeps_the_weight_in_fp32() -> None:
    rows = 3 * 4 * OUT
    again = 4 * OUT + (4 + 1) * IN + 4 * RANK + 4 * OUT
    assert kept(FP32, dropout=0.1, dora=True) == TOKENS * again + 4 * IN * OUT + rows
    assert kept(FP32, release="0.13.2", dora=True) == TOKENS * (again - IN) + 4 * IN * OUT + rows


ADAPTER: dict[str, Any] = {"kind": "lora", "r": 8, "targets": "all-linear", "dtype": "fp32"}
FP32_GRADIENTS = {"gradients": "fp32"}


def answer(adapter: dict[str, Any] | None = None, model: dict[str, Any] = LLAMA, **sections: Any) -> Estimate:
    return estimate(plan_of(model, adapter={**ADAPTER, **(adapter or {})}, precision=FP32_GRADIENTS, **sections))


def moment(found: Estimate, name: str) -> int:
    return max(one.allocated for one in found.ledger.moments if one.name == name)


def test_states_of_an_adapter() -> None:
    """fp32: weight and gradient 4 bytes each, two moments 8."""
    found = answer()
    states, count = states_of(found.ledger), found.parameters.trainable
    assert states["gradients"] == 4 * count
    assert states["optimizer_states"] == 8 * count
    assert states["weights"] == 2 * (found.parameters.total - count) + 4 * count


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 64), st.integers(1, 64))
def test_more_rank_never_costs_less(one: int, other: int) -> None:
    less, more = (answer({"r": rank}) for rank in sorted((one, other)))
    assert less.parameters.trainable <= more.parameters.trainable
    assert less.steps.allocated.expected <= more.steps.allocated.expected


def test_below_the_first_adapter_nothing_is_kept() -> None:
    """An adapter in the last layer alone: the layers below keep nothing for a backward that never reaches them."""
    last = answer({"options": {"layers_to_transform": [2]}, "targets": ["q_proj"]})
    first = answer({"options": {"layers_to_transform": [0]}, "targets": ["q_proj"]})
    assert moment(first, "step 2: loss") > moment(last, "step 2: loss") + 2 * 512 * 2 * 640 * 3


def test_a_recomputed_model_asks_its_embedding_for_a_gradient() -> None:
    """The rows and their gradient stay as long as the loss has a name; a Trainer lets go of both."""
    recompute = {"recompute": {"kind": "full", "reentrant": False}}
    loop = answer(stack=recompute)
    versions = {"torch": "2.14.1", "transformers": "5.24.0", "accelerate": "1.0"}
    trainer = answer(stack={**recompute, "versions": versions, "options": {"batch_tensors": ["input_ids"]}})
    rows = 2 * 512 * 256
    assert moment(loop, "step 2: optimizer") - moment(trainer, "step 2: optimizer") == 2 * rows


def test_a_module_trained_whole_has_a_gradient_of_its_own_dtype() -> None:
    found = answer({"train_extra": ["lm_head"]})
    sizes = {line.dtype.name for line in found.ledger.lines if "lm_head.modules_to_save" in line.name}
    assert sizes == {"bf16"}


def test_dora_over_a_quantised_base_makes_the_weight_for_its_norms() -> None:
    """Forward holds four fp32 matrices and the identity, as over a dense base: the 16-bit one dies as it is cast."""
    dora = {"kind": "dora", "targets": ["gate_proj"]}
    batch = {"micro_batch": 1, "sequence": 16}
    dense, packed = answer(dora, batch=batch), answer(dora, batch=batch, quantization={"kind": "nf4"})
    made = max(line.unit for line in packed.ledger.lines if line.name.endswith("dequantised weight"))
    assert made == 2 * 640 * 256
    names = [{line.name for line in one.ledger.lines if "adapted weight" in line.name} for one in (dense, packed)]
    assert names[0] == names[1] != set()


OPT: dict[str, Any] = {
    "name": "opt-small", "model_type": "opt", "hidden_size": 256, "ffn_dim": 1024, "num_hidden_layers": 3,
    "num_attention_heads": 4, "vocab_size": 512, "max_position_embeddings": 512, "word_embed_proj_dim": 256,
    "dropout": 0.0,
}  # fmt: skip


@pytest.mark.parametrize(("model", "left"), [(OPT, 3), (LLAMA, 2)])
def test_the_first_layers_input_goes_with_its_name(model: dict[str, Any], left: int) -> None:
    """OPT's forward binds `hidden_states` anew with each layer, of which norms keep two inputs; Llama's
    calls the first one's input `inputs_embeds`, too."""
    lora = {"kind": "lora", "r": 8, "targets": ["q_proj"], "dtype": "bf16"}
    ledger = estimate(plan_of(model, adapter=lora)).ledger
    line = next(number for number, line in enumerate(ledger.lines) if line.name == "hidden states") + 1
    forward = [one for one in ledger.segments if one.moment in ("init", "step 1: forward")]
    assert sum(one.repeat * (one.events.count(line) - one.events.count(-line)) for one in forward) == left
