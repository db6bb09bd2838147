"""The state tensors that an optimizer's row keeps for one parameter."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from math import prod

from trainledger.facts.dtypes import BF16, FP32, DType
from trainledger.facts.optimizer_kinds import (
    Blocks,
    Kind,
    Optimizer,
    Part,
    Place,
    Shape,
    State,
    StepTensor,
    When,
    Width,
)
from trainledger.facts.optimizers import OPTIMIZERS

MATRIX = 2  # dims of a weight matrix
MATRICES_ONLY = (Shape.PROJECTOR, Shape.FACTORED_ONLY, Shape.SIDES)


@dataclass(frozen=True, slots=True)
class StateTensor:
    """One tensor of an optimizer's state: `elements` of `dtype` in `bytes`, not rounded by any allocator."""

    kind: Kind
    dtype: DType
    elements: int
    bytes: int
    place: Place = Place.DEVICE
    part: Part = Part.VALUES


@dataclass(frozen=True, slots=True)
class StateOptions:
    """What the plan says beyond the row.

    `gradient`: the gradient's dtype (the parameter's where None). `rank`: GaLore's and APOLLO's. `wide`: the tensor
    is kept out of block-wise codes (embeddings under Transformers' Trainer). `matrix`: False where the method does not
    treat the tensor as one of its matrices: Muon hands it to its fallback, GaLore and APOLLO keep full states.
    `dtypes`: (kind, dtype) pairs that replace the row's rule. `block`: elements per scale, where the installed release
    differs from the newest.
    """

    implementation: str | None = None
    gradient: DType | None = None
    rank: int = 128  # Transformers' default for GaLore and APOLLO
    wide: bool = False
    matrix: bool = True
    dtypes: tuple[tuple[Kind, DType], ...] = ()
    block: int | None = None


def state_bytes(
    row: Optimizer, dims: tuple[int, ...], param_dtype: DType, how: StateOptions | None = None
) -> tuple[StateTensor, ...]:
    """The state tensors of one parameter with sizes `dims` (elements), as the implementation allocates them.

    `param_dtype` is that of what the optimizer updates: the master weight's where there is one.
    Raises KeyError for an implementation the row lacks. Shared look-up tables are `shared_tensors`. What is not a
    matrix goes to the row's fallback in its default implementation (the fallback's own step count included).
    Source: the row's and the implementation's.
    """
    how = how or StateOptions()
    if row.fallback and (len(dims) != MATRIX or not how.matrix):
        other = StateOptions(gradient=how.gradient, dtypes=how.dtypes)
        return state_bytes(OPTIMIZERS[row.fallback], dims, param_dtype, other)
    implementation = row.implementation(how.implementation)
    tensors: list[StateTensor] = []
    for state in row.states:
        if state.when is When.SIXTEEN_BIT and param_dtype.bits >= FP32.bits:
            continue
        chosen = replace(state, width=implementation.width or state.width)
        tensors.extend(_of_state(row, chosen, dims, param_dtype, how))
    if implementation.step is not StepTensor.NUMBER:
        place = Place.HOST if implementation.step is StepTensor.HOST else Place.DEVICE
        tensors.append(StateTensor(Kind.STEP, FP32, 1, FP32.bytes_of(1), place))
    return tuple(tensors)


def shared_tensors(row: Optimizer) -> tuple[StateTensor, ...]:
    """The look-up tables that all of an optimizer's tensors share: a signed one, and for two states an unsigned one."""
    if row.blocks is None or not row.blocks.shared or not row.blocks.entries:
        return ()
    kinds = [state.kind for state in row.states if state.width is Width.CODES]
    tables = dict.fromkeys(Kind.SECOND if kind is Kind.SECOND and len(kinds) > 1 else Kind.FIRST for kind in kinds)
    return tuple(_table(kind, row.blocks) for kind in tables)


def _of_state(
    row: Optimizer, state: State, dims: tuple[int, ...], param_dtype: DType, how: StateOptions
) -> Iterator[StateTensor]:
    dtype = dict(how.dtypes).get(state.kind)
    for size in _sizes(state, dims, how):
        width = state.width
        if dtype is None and width is Width.CODES and row.blocks is not None:
            if _coded(row.blocks, size, how):
                yield from _coded_tensors(row, state.kind, size, how)
                continue
            width = row.blocks.small
        chosen = dtype or dtype_of(width, param_dtype, how.gradient or param_dtype)
        yield StateTensor(state.kind, chosen, size, chosen.bytes_of(size), _place(row, size))


def dtype_of(width: Width, parameter: DType, gradient: DType) -> DType:
    """The dtype that a width rule gives for a parameter and its gradient. Codes have none: KeyError."""
    raised = FP32 if gradient.bits < FP32.bits else gradient
    return {
        Width.PARAMETER: parameter,
        Width.GRADIENT: gradient,
        Width.GRADIENT_FP32: raised,
        Width.FP32: FP32,
        Width.BF16: BF16,
    }[width]


def _sizes(state: State, dims: tuple[int, ...], how: StateOptions) -> tuple[int, ...]:
    """The element counts of a state's tensors. Leading dims beyond two are kept, as torch's Adafactor keeps them."""
    whole = prod(dims)
    ranked = state.shape in (Shape.LOW_RANK, Shape.LOW_RANK_FACTORED, Shape.PROJECTOR)
    plain = len(dims) < MATRIX or (ranked and not how.matrix)
    if state.shape is Shape.FULL or plain:
        return () if state.shape in MATRICES_ONLY else (whole,)
    if state.shape is Shape.SIDES:
        return tuple(side * side for side in dims if side <= state.longest)
    rows, columns = dims[-MATRIX], dims[-1]
    if not ranked:
        return (whole // columns, whole // rows)
    smaller, larger = sorted((rows, columns))
    kept = min(how.rank, smaller)
    if state.shape is Shape.LOW_RANK_FACTORED:
        return (kept, larger)
    return (kept * larger,) if state.shape is Shape.LOW_RANK else (kept * smaller,)


def _coded(blocks: Blocks, elements: int, how: StateOptions) -> bool:
    uneven = blocks.whole_blocks and elements % (how.block or blocks.block) != 0
    return not how.wide and elements >= blocks.smallest and not uneven


def _coded_tensors(row: Optimizer, kind: Kind, elements: int, how: StateOptions) -> Iterator[StateTensor]:
    blocks = row.blocks
    assert blocks is not None
    scales = -(-elements // (how.block or blocks.block))
    yield StateTensor(kind, blocks.codes, elements, blocks.codes.bytes_of(elements), _place(row, elements))
    yield StateTensor(kind, blocks.scales, scales, blocks.scales.bytes_of(scales), Place.DEVICE, Part.SCALES)
    if blocks.entries and not blocks.shared:
        yield _table(kind, blocks)


def _table(kind: Kind, blocks: Blocks) -> StateTensor:
    return StateTensor(kind, FP32, blocks.entries, FP32.bytes_of(blocks.entries), Place.DEVICE, Part.MAP)


def _place(row: Optimizer, elements: int) -> Place:
    return Place.MANAGED if row.paging is not None and elements >= row.paging.smallest else Place.DEVICE
