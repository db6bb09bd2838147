"""The words of an optimizer's row: what a state is, how it is stored, and what a step allocates."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source
from trainledger.facts.dtypes import DType


class Kind(StrEnum):
    """What an optimizer state holds."""

    FIRST = "first_moment"
    SECOND = "second_moment"
    MOMENTUM = "momentum"
    SLOW = "slow_first_moment"
    ACCUMULATOR = "squared_gradient_sum"
    DIFFERENCE = "gradient_difference_moment"
    PREVIOUS = "previous_gradient"
    HESSIAN = "hessian_moment"
    ITERATE = "base_iterate"
    INFINITY = "largest_gradient"
    DELTA = "squared_update_average"
    AVERAGE = "parameter_average"
    RATE = "step_size"
    CONFIDENCE = "residual_moment"
    DISTANCE = "distance_sum"
    ORIGIN = "initial_parameter"
    COMPENSATION = "kahan_compensation"
    PRECONDITIONER = "preconditioner"
    EIGENVECTORS = "eigenvectors"
    PROJECTOR = "projector"
    STEP = "step"


class Shape(StrEnum):
    """How a state's shape follows from the parameter's."""

    FULL = "full"
    FACTORED = "factored"  # matrices: one entry per row and one per column; vectors: full
    FACTORED_ONLY = "factored_only"  # the same for matrices; vectors: none
    LOW_RANK = "low_rank"  # matrices: the smaller of the two sides becomes the rank; vectors: full
    LOW_RANK_FACTORED = "low_rank_factored"  # the factors of that smaller matrix; vectors: full
    PROJECTOR = "projector"  # matrices: rank x the smaller side; vectors: none
    SIDES = "sides"  # matrices: one square per side that is no longer than `State.longest`; vectors: none


class Width(StrEnum):
    """Which dtype a state or a temporary has."""

    PARAMETER = "parameter"
    GRADIENT = "gradient"
    GRADIENT_FP32 = "gradient_fp32"  # the gradient's, but 16-bit gradients are raised to fp32
    FP32 = "fp32"
    BF16 = "bf16"
    CODES = "codes"  # block-wise codes with scales, see Blocks


class Place(StrEnum):
    """Where a state lives, as the optimizer itself places it."""

    DEVICE = "device"
    HOST = "host"
    MANAGED = "managed"  # unified memory: outside the caching allocator, paged between device and host


class Part(StrEnum):
    """What of a state a tensor is."""

    VALUES = "values"
    SCALES = "scales"
    MAP = "map"


class StepTensor(StrEnum):
    """Where the count of steps is kept: a number in Python, or one fp32 scalar per parameter."""

    NUMBER = "number"
    HOST = "host"
    DEVICE = "device"


class Scope(StrEnum):
    """Of what a step's temporary has the size."""

    ALL = "all"  # every parameter of the step at once (a dtype group of foreach)
    CURRENT = "current"  # the parameter being updated
    PREVIOUS = "previous"  # the one updated before it: a local name still holds the tensor
    SQUARE = "square"  # the current parameter's smaller side, squared


class When(StrEnum):
    """Under which condition a temporary exists."""

    ALWAYS = "always"
    L2 = "l2_decay"  # weight decay that is added to the gradient, not decoupled
    SIXTEEN_BIT = "16_bit"  # parameter and gradient are in 16 bits


@dataclass(frozen=True, slots=True)
class Temporary:
    """`count` tensors of that scope and dtype, all alive at the fullest instant of the step."""

    count: int
    scope: Scope
    width: Width = Width.PARAMETER
    when: When = When.ALWAYS


@dataclass(frozen=True, slots=True)
class State:
    """One state: its shape rule, its dtype rule, and under which condition it exists. `longest`: see SIDES."""

    kind: Kind
    shape: Shape = Shape.FULL
    width: Width = Width.PARAMETER
    when: When = When.ALWAYS
    longest: int = 0


@dataclass(frozen=True, slots=True)
class Blocks:
    """Block-wise quantised storage. `codes` per element, one `scales` entry per block.

    `block` elements share a scale; `older` is (last version, its block) where an earlier release differs.
    Tensors with fewer than `smallest` elements keep `small` instead; with `whole_blocks` so does a tensor whose
    elements are no multiple of the block. `entries` fp32 entries of the look-up table of a signed state and of an
    unsigned one, shared by all tensors of an optimizer where `shared`.
    """

    codes: DType
    scales: DType
    block: int
    smallest: int
    small: Width
    entries: int
    shared: bool
    whole_blocks: bool
    source: Source
    older: tuple[str, int] = ("", 0)


@dataclass(frozen=True, slots=True)
class Paging:
    """States of at least `smallest` elements live in managed memory; scales do not."""

    smallest: int
    source: Source


@dataclass(frozen=True, slots=True)
class Implementation:
    """How a framework runs the row: where its step count lives, what its step allocates, and its states' dtype.

    `width` overrides the states' dtype rule. `uncounted`: what the step makes besides, which has no rule here: the
    number is a lower bound then. `asked_by`: options of the optimizer, any of which means that this one runs; nothing
    else chooses among the implementations of such an optimizer.
    """

    name: str
    step: StepTensor
    temporaries: tuple[Temporary, ...]
    source: Source
    width: Width | None = None
    uncounted: str = ""
    asked_by: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Optimizer:
    """One optimizer of the plan format.

    `implementations[0]` is what runs where the plan names none. `fallback` is the row that updates what is not a
    matrix (and, by the framework's choice, embeddings and heads). `eager`: states exist from construction on, not
    from the first step.
    """

    name: str
    states: tuple[State, ...]
    implementations: tuple[Implementation, ...]
    source: Source
    blocks: Blocks | None = None
    paging: Paging | None = None
    fallback: str = ""
    eager: bool = False

    def chosen(self, name: str | None, options: Iterable[str]) -> str | None:
        """The implementation that runs where a plan names this one and these options; None for the default."""
        given = set(options)
        if any(one.asked_by for one in self.implementations):
            return next((one.name for one in self.implementations if given.intersection(one.asked_by)), None)
        return name if name in {one.name for one in self.implementations} else None

    def implementation(self, name: str | None) -> Implementation:
        """The implementation of that name, or the default for None. Raises KeyError for a name the row lacks."""
        if name is None:
            return self.implementations[0]
        for row in self.implementations:
            if row.name == name:
                return row
        raise KeyError(name)
