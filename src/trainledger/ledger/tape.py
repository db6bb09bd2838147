"""The tape: values, storages and primitives, as a framework's eager mode makes them.

A rule (see `rules/`) writes an operation as primitives on a tape. The tape knows which value shares whose storage,
which value needs a gradient, what autograd keeps, and where a value's last use is. `walk` then turns a tape into
births and deaths of storages, forward and backward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import NamedTuple

from trainledger.base.dims import Dim, Dims, elements
from trainledger.base.sources import Basis
from trainledger.facts.allocator import CUDA
from trainledger.facts.dtypes import DType
from trainledger.facts.kernel_sets import UNKNOWN_DEVICE, Multiprocessors
from trainledger.model.program import Weight

EXTERNAL = -1
WORDS, TOKENS = Dim.VOCAB, (Dim.SEQUENCE, Dim.TOKENS)
SCALED = "scaled_mm"  # a product of factors in 8 bits
UNLISTED = "scaled_mm of another name"  # likewise, which torchtitan's policy does not know
OWN = "own linear"  # a framework's own function of a product: it returns its gradients as they are, not views of them
# primitives that run cuBLAS: a thread's first one takes a workspace
PRODUCTS = frozenset({"linear", "bmm", SCALED, UNLISTED, OWN})


class Code(IntEnum):
    """What one step of a backward function does."""

    GRAD = 0  # the gradient of an input is born
    PASS = 1  # the gradient of an input is the incoming gradient itself
    BORN = 2  # a temporary is born
    DEAD = 3  # a temporary dies
    GIVE = 4  # a temporary becomes the gradient of an input
    VIEW = 5  # as GRAD, but a view of a product: another cannot be added to it in place
    SEEN = 6  # as PASS, but through a view: another cannot be added to it in place
    TURN = 7  # what was saved becomes the gradient of an input, in place
    LEFT = 8  # the function has returned; what follows (casts, reductions) is the engine's
    CLEAR = 9  # what was saved dies before the function returns


GIVES = frozenset({Code.GRAD, Code.PASS, Code.GIVE, Code.VIEW, Code.SEEN, Code.TURN})  # steps with an input's gradient


class Step(NamedTuple):
    """One step of a backward function: `at` is the input's position; `value` the temporary's place on the tape."""

    code: Code
    at: int = 0
    value: int = 0


class Prim(NamedTuple):
    """One primitive: inputs, outputs, what it saves for backward, its backward steps, bytes alive only inside it."""

    kind: str
    ins: tuple[int, ...]
    outs: tuple[int, ...]
    saves: tuple[int, ...]
    steps: tuple[Step, ...]
    work: tuple[int, ...]


class Storage(NamedTuple):
    """One allocation: its rounded bytes and what it holds. `weight` names the parameter a gradient belongs to;
    `stream`: the CUDA stream on which it is made (0: that of compute); `sent`: a communicator's stream uses it."""

    size: int
    dims: Dims
    dtype: DType
    name: str
    weight: Weight | None = None
    basis: Basis = Basis.COUNTED
    stream: int = 0
    sent: bool = False

    @classmethod
    def of(cls, dims: Dims, dtype: DType, name: str, weight: Weight | None = None) -> Storage:
        """A storage for a tensor of these dims, rounded as the allocator rounds."""
        return cls(CUDA.rounded(dtype.bytes_of(elements(dims))), dims, dtype, name, weight)


class Dropped(NamedTuple):
    """Saved storages that are emptied after the primitive `end`, and filled again before its backward: by primitives
    from `first` to `last`, which save nothing but what they are handed (`inputs`); or, where there are none of these,
    from the host."""

    first: int
    last: int
    end: int
    storages: tuple[int, ...]
    inputs: tuple[int, ...] = ()


class Tape:
    """Values, storages and primitives of one block; a builder that lives only while its block is walked."""

    __slots__ = (
        "attached",
        "autocast",
        "cached",
        "casts",
        "device",
        "dims",
        "dropped",
        "dtype",
        "ends",
        "grad",
        "inherited",
        "keeping",
        "leaf",
        "leaves",
        "piped",
        "planned",
        "prims",
        "rest",
        "returned",
        "scope",
        "split",
        "storages",
        "store",
        "stored",
        "stored_at",
        "within",
        "wrapped",
    )

    def __init__(self, autocast: DType | None = None, device: Multiprocessors = UNKNOWN_DEVICE) -> None:
        self.autocast = autocast
        self.device = device
        self.dims: list[Dims] = []
        self.dtype: list[DType] = []
        self.grad: list[bool] = []
        self.store: list[int] = []
        self.leaf: dict[int, Weight] = {}
        self.cached: dict[Weight, int] = {}
        self.casts: dict[int, int] = {}  # of leaves that are no parameters
        self.leaves: set[int] = set()
        self.attached: list[int] = []  # held by a node of the graph as its own attributes, until the graph is gone
        self.inherited: list[int] = []
        self.dropped: list[Dropped] = []
        self.storages: list[Storage] = []
        self.prims: list[Prim] = []
        self.ends: list[int] = []
        self.scope = ""
        self.keeping: frozenset[str] = frozenset()  # primitives that save their input beside what they say
        self.piped = False  # ranks exchange tensors while products run
        self.within: set[int] = set()  # storages that a product returns inside a primitive
        self.planned = False  # a compiler's plan holds buffers for later ones
        self.split: list[tuple[int, int]] = []  # spans of primitives whose weights' gradients come after all others
        self.stored: list[int] = []  # named by a dictionary that all layers are handed, from `stored_at` primitives on
        self.stored_at = 0
        self.returned: list[int] = []  # a layer's attention weights that it returns beside its result
        self.rest: Callable[[], int] | None = None  # of an operation, which the first to read its result writes
        self.wrapped: set[int] = set()  # tensors of a subclass, to whose gradients nothing is added in place

    def outside(self, dims: Dims, dtype: DType, grad: bool, weight: Weight | None = None) -> int:
        """A value whose storage this tape does not own: a parameter, or a tensor of the step around the block."""
        value = self._value(dims, dtype, grad, EXTERNAL)
        if weight is not None:
            self.leaf[value] = weight
        return value

    def fresh(self, dims: Dims, dtype: DType, grad: bool, name: str = "") -> int:
        """A value with a storage of its own; born when the primitive that returns it runs."""
        self.storages.append(Storage.of(dims, dtype, f"{self.scope}: {name}" if name else self.scope))
        return self._value(dims, dtype, grad, len(self.storages) - 1)

    def inherit(self, dims: Dims, dtype: DType, grad: bool, name: str) -> int:
        """A value whose storage is alive when the block starts, and whose name may end in it (a block's input)."""
        self.scope = name
        value = self.fresh(dims, dtype, grad)
        self.inherited.append(self.store[value])
        return value

    def alias(self, of: int, dims: Dims | None = None) -> int:
        """A value that shares the storage of another (a view)."""
        return self._value(self.dims[of] if dims is None else dims, self.dtype[of], self.grad[of], self.store[of])

    def _value(self, dims: Dims, dtype: DType, grad: bool, store: int) -> int:
        self.dims.append(dims)
        self.dtype.append(dtype)
        self.grad.append(grad)
        self.store.append(store)
        self.ends.append(len(self.prims))
        return len(self.store) - 1

    def run(self, prim: Prim) -> int:
        """Append a primitive; returns its first output."""
        at = len(self.prims)
        if prim.kind in self.keeping and prim.saves:
            prim = prim._replace(saves=(prim.ins[0], *prim.saves))
        self.prims.append(prim)
        ends = self.ends
        for value in prim.ins:
            ends[value] = at
        for value in prim.outs:
            ends[value] = at
        return prim.outs[0]

    def end(self, values: Sequence[int]) -> None:
        """The Python names of these values end here: they live at least as long as all primitives so far."""
        at = len(self.prims) - 1
        for value in values:
            self.ends[value] = max(self.ends[value], at)


def over_vocabulary(dims: Dims) -> bool:
    """Whether a tensor has an entry per token and word: logits, and what the loss makes of them."""
    names = [axis.dim for axis in dims]  # asked of every storage, of which few have an entry per word
    return WORDS in names and any(name in TOKENS for name in names)


def born(*storages: int) -> tuple[Step, ...]:
    """These temporaries are born."""
    return tuple(Step(Code.BORN, 0, one) for one in storages)


def dead(*storages: int) -> tuple[Step, ...]:
    """These temporaries die."""
    return tuple(Step(Code.DEAD, 0, one) for one in storages)
