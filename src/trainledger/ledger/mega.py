"""How Megatron-Core runs its layers: degrees, fusions, implementation."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.ledger.mega_fp8 import Quant
from trainledger.ledger.mega_routing import Routing
from trainledger.lines.parts import Parts


class Backend(StrEnum):
    """Which of Transformer Engine's attentions runs."""

    FUSED = "fused"  # cuDNN
    FLASH = "flash"
    UNFUSED = "unfused"


@dataclass(frozen=True, slots=True)
class Engine:
    """Transformer Engine: its release, attention, whether its algorithms are deterministic, the context-parallel ranks
    and how they exchange keys and values (`p2p`, `all_gather`, `a2a`, or `a2a+p2p`: by heads among `inner` of them),
    its 8-bit products (None: in the layers' dtype)."""

    release: str
    backend: Backend
    deterministic: bool = False
    ranks: int = 1
    exchange: str = "p2p"
    quant: Quant | None = None
    inner: int = 1


@dataclass(frozen=True, slots=True)
class Fusions:
    """Which of Megatron's fusions are on: of bias and activation, of bias, dropout and residual sum, of mask and
    softmax, of rotary embedding, of a weight's gradient with the buffer that it is added to. `compiled`: functions that
    are marked for it are compiled, which write no input in place before they end."""

    activation: bool = True
    dropout: bool = True
    softmax: bool = True
    rope: bool = True
    gradient: bool = True
    compiled: bool = True


@dataclass(frozen=True, slots=True)
class Hosted:
    """Modules whose saved tensors go to the host, and the least elements of one that does; `stays`: those of the last
    module of each name do not, as its backward is next."""

    modules: tuple[str, ...]
    least: int
    stays: bool


@dataclass(frozen=True, slots=True)
class Day:
    """What a release of Megatron-Core does. `anew`: what stands in for the output layer's gradient, which is added to
    its buffer, is made anew each time and goes at once; `listed`: attention names queries, keys and values together
    until it returns."""

    anew: bool = False
    listed: bool = False


@dataclass(frozen=True, slots=True)
class Scores:
    """How attention that Megatron's own layers write out takes its softmax. `wide`: in fp32; `layered`: scores are
    divided by the layer's number before it, and multiplied again in it; `masked`: the causal mask comes with the batch;
    `apart`: attention runs again by itself."""

    wide: bool = False
    layered: bool = False
    masked: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Mega:
    """The run of one rank's layers. `scattered`: between layers the sequence is spread over the tensor-parallel ranks;
    `engine`: Transformer Engine's modules run (None: Megatron's own); `scores`: how attention is written out; `spread`:
    a recomputed layer's kept input is spread over the tensor-parallel ranks; `routing`: how experts run (None: there
    are none); `hosted`: what goes to the host (None: nothing); `away`: how many whole layers' saved tensors do;
    `delayed`: weights' gradients come after their module's others; `day`: what its release does."""

    parts: Parts
    scattered: bool
    fusions: Fusions
    engine: Engine | None = None
    scores: Scores = Scores()
    spread: bool = False
    routing: Routing | None = None
    hosted: Hosted | None = None
    away: int = 0
    delayed: bool = False
    day: Day = Day()

    @property
    def ranks(self) -> int:
        """The tensor-parallel ranks over which the sequence is spread between layers; 1 where it is not."""
        return self.parts.tp if self.scattered else 1

    @property
    def stays(self) -> bool:
        """Whether the last layer's saved tensors do not go to the host where others' do."""
        return self.hosted is not None and self.hosted.stays

    @property
    def added(self) -> bool:
        """Whether weights' gradients are added to their buffer by the product itself, and none are made."""
        return self.engine is not None and self.fusions.gradient
