"""The frame in which a block's operations are written: the run's setting, the tape, names bound to values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from trainledger.base.dims import Axis, Dim, Dims
from trainledger.facts.dtypes import DType
from trainledger.ledger import stacked
from trainledger.ledger.aten import to
from trainledger.ledger.rows import Rows
from trainledger.ledger.software import Software
from trainledger.ledger.tape import Tape
from trainledger.ledger.visits import Call
from trainledger.lines.kernel_choice import Asked, Choice, choose
from trainledger.model import program as p
from trainledger.model.program import Weight
from trainledger.model.weights import WITH_NORMS


@dataclass(frozen=True, slots=True)
class Setting:
    """What the rules need to know of the run: tokens, the plan's word for attention, dtypes, dropout, releases, the
    device's architecture, whether cuDNN attention is set back, and what masks there are. `norms` is None where every
    weight is read in the dtype `weights`, whatever it is kept in."""

    batch: int
    sequence: int
    attention: str
    weights: DType
    norms: DType | None
    autocast: DType | None = None
    training: bool = True
    torch: str = ""
    architecture: str = ""
    fallback_kernels: bool = False
    transformers: str = ""
    rows: Rows = Rows.BARE

    def cast(self, tape: Tape, x: int) -> int:
        """A float that every layer is handed, as it arrives."""
        return x

    @property
    def masked(self) -> bool:
        """Whether the batch has a mask of its tokens."""
        return self.rows in (Rows.MASKED, Rows.PADDED)

    @property
    def padded(self) -> bool:
        """Whether the batch's mask hides padding."""
        return self.rows is Rows.PADDED

    @property
    def packed(self) -> bool:
        """Whether the model takes every row for a packed one."""
        return self.rows is Rows.PACKED

    def dtype_of(self, weight: Weight) -> DType:
        """The dtype in which a weight is read."""
        if weight.packed is not None:
            return weight.packed.compute
        if self.norms is None:
            return self.weights
        return weight.dtype or (self.norms if weight.role in WITH_NORMS else self.weights)


@dataclass(frozen=True, slots=True)
class Mixed(Setting):
    """A setting in which FSDP casts floats that a layer is handed to the dtype in which its weights are read."""

    def cast(self, tape: Tape, x: int) -> int:
        """A copy of another dtype."""
        return to(tape, x, self.weights)


@dataclass(frozen=True, slots=True)
class Frame:
    """One block being written on a tape: the tape, the setting, names bound to values, parameters by weight, the
    attention kernels of the operations being written, fused kernels, releases, operations' primitives and calls, the
    keys of each attention, and its values; parameters that are adapted for the call that is being written."""

    tape: Tape
    setting: Setting
    names: dict[str, int]
    trained: Callable[[Weight], bool]
    params: dict[Weight, int]
    kernels: list[Choice] = field(default_factory=list)
    software: Software = field(default_factory=Software)
    marks: list[tuple[str, int, int]] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    keys: list[int] = field(default_factory=list)
    values: list[int] = field(default_factory=list)
    folded: dict[Weight, stacked.Folded] = field(default_factory=dict)

    def choice(self, spec: p.Attention) -> Choice:
        """The kernel that this attention runs, given whether there is a mask for it."""
        s = self.setting
        return choose(
            Asked(
                word=s.attention,
                dtype=s.autocast or s.weights,
                head=spec.head,
                mask=spec.mask_name in self.names,
                dropout=spec.dropout if s.training else 0,
                grouped=spec.heads != spec.kv_heads,
                torch=s.torch,
                architecture=s.architecture,
                deprioritised=s.fallback_kernels,
                transformers=s.transformers,
                family=self.software.family,
                value=spec.value,
            )
        )

    def attended(self, keys: int, values: int) -> None:
        """An attention is written: its keys and values."""
        self.keys.append(keys)
        self.values.append(values)

    def param(self, weight: Weight | None) -> int | None:
        """The parameter's value on this tape (None for None)."""
        if weight is None:
            return None
        if weight in self.folded:
            return self.folded[weight].read(self.tape)
        if weight not in self.params:
            dtype = self.setting.dtype_of(weight)
            self.params[weight] = self.tape.outside(weight.dims, dtype, self.trained(weight), weight)
        return self.params[weight]

    def wrapped(self, folds: tuple[p.Fold, ...]) -> None:
        """A module is called inside the wrappers of its parameters."""
        for one in folds:
            values = self.need(one.weight), self.need(one.down), self.need(one.up)
            self.folded[one.weight] = stacked.fold(self.tape, one, values, self.software.release("peft"))

    def unwrapped(self) -> None:
        """The wrappers' call has returned: what they made is let go."""
        for one in self.folded.values():
            self.tape.end([*one.factors, *(() if one.made is None else (one.made,))])
        self.folded.clear()

    def need(self, weight: Weight) -> int:
        """The parameter's value on this tape."""
        value = self.param(weight)
        assert value is not None
        return value

    def dims(self, tail: Dims) -> Dims:
        """Dims of a tensor of the micro-batch: batch, sequence, then what the operation makes per token."""
        return (Axis(Dim.BATCH, self.setting.batch), Axis(Dim.SEQUENCE, self.setting.sequence), *tail)
