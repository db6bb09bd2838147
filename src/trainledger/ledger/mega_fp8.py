"""How a plan under Megatron-Core takes its products in 8 bits: the recipe, its copies, and which layers stay out of it.

Source: megatron/core/fp8_utils.py, get_fp8_context; extensions/transformer_engine.py (0.14 to 0.19).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import BF16, DTYPES, FP8, FP32, UINT8, DType
from trainledger.facts.transformer_engine_fp8 import (
    DIRECT,
    ENDS,
    OWN_INPUT,
    OWN_INPUT_AGAIN,
    Recipe,
    recipe_of,
)
from trainledger.model.weights import Role, Weight
from trainledger.plan.schema import Plan

DELAYED = "delayed"  # what Megatron-Core and Transformer Engine take where no recipe is named
WIDTHS = ("fp8", "mxfp8")
Copy = tuple[str, Dims, int]  # what it is, its dims, bytes of scales


@dataclass(frozen=True, slots=True)
class Quant:
    """8-bit products. `apart`: a tensor's rows and columns are two copies; `held`: weights are kept in 8 bits
    themselves; `inputs`: ends of names of weights whose layers keep their input as it came; `padded`: rows of experts
    are padded on the way; `wide`: numbers of the decoder's layers that stay in 16 bits."""

    recipe: Recipe
    apart: bool
    held: bool
    inputs: tuple[str, ...]
    padded: bool
    wide: frozenset[int] = frozenset()

    def scales(self, dims: Dims, weight: bool = False) -> int:
        """Bytes of a copy's scales."""
        block = self.recipe.weight_block if weight else self.recipe.block
        return -(-elements(dims) // block) * self.recipe.scale if block else 0

    def keeps_input(self, name: str) -> bool:
        """Whether the layer of this weight keeps its input as it came."""
        return self.recipe.kept and name.endswith(self.inputs)


def quant_of(plan: Plan, architecture: str) -> Quant | None:
    """As the plan says; None where products are not in 8 bits."""
    precision, keys = plan.precision, plan.parallel.options
    if precision.compute not in WIDTHS:
        return None
    given = precision.fp8
    name = "mxfp8" if precision.compute == "mxfp8" else (given.recipe if given and given.recipe else DELAYED)
    recipe = recipe_of(name)
    assert recipe is not None  # the plan was checked
    digits = architecture.removeprefix("sm")
    direct = digits.isdigit() and int(digits) >= DIRECT.since
    modules = plan.stack.recompute.modules or () if plan.stack.recompute.kind == "selective" else ()
    again = [one for name in modules for one in OWN_INPUT_AGAIN.get(name, ())]
    padded = not (keys.get("moe_router_padding_for_fp8") or keys.get("moe_router_padding_for_quantization"))
    wide = wide_layers(plan, int(plan.keys()["num_hidden_layers"]))
    return Quant(recipe, not (recipe.straight and direct), held(plan), (*OWN_INPUT, *again), padded, wide)


def held(plan: Plan) -> bool:
    """Whether weights of 8-bit layers are kept in 8 bits."""
    given = plan.precision.fp8
    return plan.precision.weights == FP8.name or bool(given and given.param_gather)


def own_dtype(plan: Plan) -> DType:
    """The dtype of the model's tensors: of weights that are kept in 8 bits it is the one that they pass for, which is
    fp32 where the optimizer has no master weights beside them."""
    precision = plan.precision
    if precision.weights != FP8.name:
        return DTYPES[precision.weights]
    return BF16 if precision.master else FP32


def stored(quant: Quant | None, layer: int, weight: Weight) -> DType | None:
    """The dtype in which a weight of this layer (-1: of none, or of one for further tokens) is kept in 8 bits; None
    where it is not."""
    read = weight.role in (Role.MATRIX, Role.EXPERT) and quant is not None and quant.held and layer not in quant.wide
    return FP8 if read else None


def wide_layers(plan: Plan, layers: int) -> frozenset[int]:
    """The decoder's layers that stay in 16 bits."""
    options = plan.stack.options
    if not options.get("first_last_layers_bf16"):
        return frozenset()
    first = int(options.get("num_layers_at_start_in_bf16", ENDS.first))
    last = int(options.get("num_layers_at_end_in_bf16", ENDS.last))
    return frozenset(range(first)) | frozenset(range(layers - last, layers))


def copies(quant: Quant, dims: Dims, rows: bool = True, columns: bool = True, weight: bool = False) -> Iterator[Copy]:
    """The copies of a tensor that these uses need."""
    scales = quant.scales(dims, weight)
    if rows or not quant.apart:
        yield "in 8 bits", dims, scales
    if columns and quant.apart:
        yield "in 8 bits by columns", dims, scales


def bytes_of(made: Sequence[Copy]) -> list[tuple[str, Dims, DType]]:
    """The tensors of these copies: data, and scales where there are several."""
    found: list[tuple[str, Dims, DType]] = []
    for name, dims, scales in made:
        found.append((name, dims, FP8))
        if scales:
            found.append((f"scales {name}", (Axis(Dim.ELEMENTS, scales),), UINT8))
    return found
