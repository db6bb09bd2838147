"""Published formulas: their coefficients as named fields, with the paper that printed them."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source

KORTHIKANTI = "Reducing Activation Recomputation in Large Transformer Models"
TABLE_2 = Source(KORTHIKANTI, "arXiv:2205.05198, table 2", "2022-05")
SECTION_5 = Source(KORTHIKANTI, "arXiv:2205.05198, section 5 and equations 7 to 9", "2022-05")
ZERO_FOOTNOTE = Source("ZeRO", "arXiv:1910.02054, section 3.2, footnote 3", "2020-05")
RULE_OF_THUMB = Source("Practitioners' rule", "training memory guides: 10 to 30 % of buffers, workspace, fragments")


@dataclass(frozen=True, slots=True)
class LayerActivations:
    """Bytes per s*b*h that one GPT layer keeps for backward in 16 bits: whole + (divided + scores * a*s/h) / t.

    `whole` stays on every tensor-parallel rank; `divided` and `scores` are divided by its degree t; `scores` counts
    a*s/h. The published layer has a GELU of width 4h, dropout, and an attention that stores its score matrix.
    """

    name: str
    whole: int
    divided: int
    scores: int
    source: Source


@dataclass(frozen=True, slots=True)
class LayerElements:
    """How the published none row adds up, in bytes: element-wise tensors of s*b*h, and matrices of a*b*s*s."""

    elementwise: int
    element_bytes: int
    scores_bytes: int
    probabilities_bytes: int
    mask_bytes: int
    source: Source


@dataclass(frozen=True, slots=True)
class SelectiveFlops:
    """What recomputing the attention core adds: s/(width*h) over 1 + s/(width*h) + V/(head*L*h)."""

    width: int
    head: int
    source: Source


@dataclass(frozen=True, slots=True)
class ModelActivations:
    """Activations of a whole GPT-2-like model: `elements` * h * b * s * L elements of `element_bytes`."""

    elements: int
    element_bytes: int
    source: Source


@dataclass(frozen=True, slots=True)
class Overhead:
    """Buffers, workspace and fragments as percent of the rest: an interval."""

    low_percent: int
    high_percent: int
    source: Source


LAYER_ACTIVATIONS: dict[str, LayerActivations] = {
    row.name: row
    for row in (
        LayerActivations("none", 34, 0, 5, TABLE_2),
        LayerActivations("tensor", 10, 24, 5, TABLE_2),
        LayerActivations("tensor-sequence", 0, 34, 5, TABLE_2),
        LayerActivations("tensor-selective", 10, 24, 0, TABLE_2),
        LayerActivations("tensor-sequence-selective", 0, 34, 0, TABLE_2),
        LayerActivations("full", 2, 0, 0, TABLE_2),
        # One device, attention core recomputed or a kernel that never stores the score matrix.
        LayerActivations("selective", 34, 0, 0, TABLE_2),
    )
}
LAYER_ELEMENTS = LayerElements(17, 2, 2, 2, 1, Source(KORTHIKANTI, "arXiv:2205.05198, section 4.1", "2022-05"))
SELECTIVE_FLOPS = SelectiveFlops(6, 12, SECTION_5)
MODEL_ACTIVATIONS = ModelActivations(12, 2, ZERO_FOOTNOTE)
OVERHEAD = Overhead(10, 30, RULE_OF_THUMB)
PERCENT = 100
