"""Published numbers of activations and of the quick procedure. Tolerances are in each test."""

from __future__ import annotations

import pytest

from trainledger.answer.quick import (
    LayerShape,
    QuickInput,
    global_batch,
    layer_bytes,
    layer_factor,
    model_activations,
    quick,
    selective_gain,
)
from trainledger.base.units import GB
from trainledger.facts.published import LAYER_ACTIVATIONS, LAYER_ELEMENTS

NONE = LAYER_ACTIVATIONS["none"]


def _shape(sequence: int, tensor: int = 1) -> LayerShape:
    return LayerShape(sequence, 1, 4096, 32, tensor)


# Reducing Activation Recomputation (arXiv:2205.05198), table 2, in bytes per s*b*h. The right column is the paper's
# formula written out for h = 12288, a = 96, s = 2048 (5as/h = 80); exact.
@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("none", lambda t: 34 + 80),
        ("tensor", lambda t: 10 + 24 / t + 80 / t),
        ("tensor-sequence", lambda t: (34 + 80) / t),
        ("tensor-selective", lambda t: 10 + 24 / t),
        ("tensor-sequence-selective", lambda t: 34 / t),
        ("full", lambda t: 2),
    ],
)
@pytest.mark.parametrize("tensor", [1, 2, 4, 8])
def test_table_2(name: str, factor: object, tensor: int) -> None:
    assert callable(factor)
    degree = 1 if name == "none" else tensor
    shape = LayerShape(2048, 1, 12288, 96, degree)
    assert layer_factor(LAYER_ACTIVATIONS[name], shape) == pytest.approx(factor(degree), rel=1e-12)
    assert layer_bytes(LAYER_ACTIVATIONS[name], shape) == pytest.approx(factor(degree) * 2048 * 12288, abs=1)


def test_what_34_and_5_are_made_of() -> None:
    """Section 4.1: 17 element-wise tensors of two bytes; scores 2, probabilities 2, dropout mask 1. Exact."""
    parts = LAYER_ELEMENTS
    assert (NONE.whole, parts.elementwise * parts.element_bytes) == (34, 34)
    assert (NONE.scores, parts.scores_bytes + parts.probabilities_bytes + parts.mask_bytes) == (5, 5)


# A 7B shape, h = 4096, a = 32, L = 32, b = 1: factor, GB a layer, GB of 32 layers, and against 112 GB of states,
# all to the digits printed beside them.
@pytest.mark.parametrize(
    ("sequence", "factor", "layer", "layers", "against_states"),
    [(2048, 114, 0.96, 31, 0.28), (4096, 194, 3.25, 104, 0.93), (8192, 354, 11.9, 380, 3.4)],
)
def test_seven_billion(sequence: int, factor: int, layer: float, layers: int, against_states: float) -> None:
    shape = _shape(sequence)
    size = layer_bytes(NONE, shape)
    assert layer_factor(NONE, shape) == factor
    assert size == factor * sequence * 4096
    assert size / GB == pytest.approx(layer, abs=0.05 if layer > 10 else 0.005)
    assert 32 * size / GB == pytest.approx(layers, abs=0.5)
    assert 32 * size / (112 * GB) == pytest.approx(against_states, abs=0.05)


def test_twice_the_length_doubles_one_term_and_quadruples_the_other() -> None:
    linear, whole = LAYER_ACTIVATIONS["selective"], NONE
    squares = [layer_bytes(whole, _shape(s)) - layer_bytes(linear, _shape(s)) for s in (2048, 4096)]
    assert layer_bytes(linear, _shape(4096)) == 2 * layer_bytes(linear, _shape(2048))
    assert squares[1] == 4 * squares[0]


# The paper's section 5: GPT-3 (175B) saves 70 % for 2.7 % more operations, MT-NLG (530B) 65 % for 1.6 %; to the
# digits printed. Vocabulary 51200.
@pytest.mark.parametrize(
    ("hidden", "heads", "layers", "saved", "cost"), [(12288, 96, 96, 0.70, 0.027), (20480, 128, 105, 0.65, 0.016)]
)
def test_selective_recompute(hidden: int, heads: int, layers: int, saved: float, cost: float) -> None:
    gain = selective_gain(LayerShape(2048, 1, hidden, heads), layers, 51200)
    assert gain[0] == pytest.approx(saved, abs=0.005)
    assert gain[1] == pytest.approx(cost, abs=0.0005)


def test_gpt2_activations_by_zero() -> None:
    """ZeRO, section 3.2: GPT-2 1.5B (48 layers of 1600) at length 1024 and batch 32 needs about 60 GB. Within 1 %."""
    size = model_activations(48, LayerShape(1024, 32, 1600, 25))
    assert size / GB == pytest.approx(60, rel=0.01)


def test_global_batch() -> None:
    """Micro-batch x data-parallel degree x accumulation; activations follow the micro-batch alone."""
    assert global_batch(2, 8, 4) == 64
    given = QuickInput(7 * GB, 32, 4096, 32, 4096, ranks=8)
    more = QuickInput(7 * GB, 32, 4096, 32, 4096, ranks=8, accumulation=16)
    assert (quick(given).global_batch, quick(more).global_batch) == (8, 128)
    assert quick(given).activations == quick(more).activations


def test_quick_procedure() -> None:
    """States 112 GB, activations of table 2, and 10 to 30 % on top; within a byte."""
    answer = quick(QuickInput(7 * GB, 32, 4096, 32, 2048))
    rest = 112 * GB + 32 * 114 * 2048 * 4096
    assert (answer.states, answer.activations) == (112 * GB, 32 * 114 * 2048 * 4096)
    assert answer.low == pytest.approx(1.1 * rest, abs=1)
    assert answer.expected == pytest.approx(1.2 * rest, abs=2)
    assert answer.high == pytest.approx(1.3 * rest, abs=1)
    assert answer.label == "rule of thumb"


def test_quick_procedure_over_eight_ranks() -> None:
    """ZeRO-3 over 8: 112 / 8 = 14 GB of states; activations are not divided."""
    answer = quick(QuickInput(7 * GB, 32, 4096, 32, 2048, ranks=8, strategy="zero3"))
    assert answer.states == 14 * GB
    assert answer.activations == quick(QuickInput(7 * GB, 32, 4096, 32, 2048)).activations
