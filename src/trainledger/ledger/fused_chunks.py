"""The loop over chunks of tokens in Liger's fused head: which tensor is made and let go after which."""

from __future__ import annotations

from dataclasses import dataclass, field

from trainledger.base.dims import Dims
from trainledger.facts.dtypes import FP32, DType
from trainledger.facts.losses import WRITTEN_CHUNKS, FusedLinear
from trainledger.ledger.tape import Prim, Tape


@dataclass(frozen=True, slots=True)
class Chunks:
    """Dims of one chunk's logits and hidden states and of the head, the dtype of products, whether the head and hidden
    states are cast to it anew for a product, and whether the head has a gradient; the names that are bound."""

    tape: Tape
    row: FusedLinear
    ins: tuple[int, ...]
    logits: Dims
    hidden: Dims
    head: Dims
    low: DType
    casts: bool
    trained: bool
    bound: dict[str, int] = field(default_factory=dict)

    def run(self, count: int) -> None:
        """Write that many chunks, or as many as tell all that follow."""
        for _ in range(min(count, WRITTEN_CHUNKS)):
            self._logits()
            self._gone(self._made(self.hidden, self.low, "gradient of a chunk's hidden states"))
            if self.row.adds and self.trained:
                parts = [self._made(self.head, self.low, "gradient of the head from a chunk")]
                if self.low != FP32:
                    parts.append(self._made(self.head, FP32, "gradient of the head from a chunk in fp32", parts[0]))
                self._gone(*parts)
        self._gone(*self.bound.values())

    def _logits(self) -> None:
        """A name's tensor of before lives until the next one is there."""
        work = ((self.head, "the head in the low dtype"), (self.hidden, "hidden states of a chunk in the low dtype"))
        casts = [self._made(dims, self.low, name) for dims, name in work] if self.casts else []
        self._bind("logits", self._made(self.logits, self.low, "logits of a chunk", *casts))
        self._gone(*casts)
        if self.row.upcast:
            self._bind("logits", self._made(self.logits, FP32, "logits of a chunk in fp32"))
            self._bind("logits", self._made(self.logits, self.low, "logits of a chunk"))
        if self.row.scaled:
            self._bind("gradient", self._made(self.logits, self.low, "gradient of a chunk's logits"))

    def _bind(self, name: str, value: int) -> None:
        if name in self.bound:
            self._gone(self.bound[name])
        self.bound[name] = value

    def _made(self, dims: Dims, dtype: DType, name: str, *ins: int) -> int:
        value = self.tape.fresh(dims, dtype, False, name)
        return self.tape.run(Prim(name, (*self.ins, *ins), (value,), (), (), ()))

    def _gone(self, *values: int) -> None:
        self.tape.end(values)
