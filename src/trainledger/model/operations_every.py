"""Operations of Llama 4 and Ministral 3: queries times numbers by position, and experts that see every token; and the
noise that a trainer adds to the embedding's rows."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.model.operations import ActKind
from trainledger.model.weights import Weight


@dataclass(frozen=True, slots=True)
class Noise:
    """Noise of the input's size and dtype, added to it in a tensor of its own."""


@dataclass(frozen=True, slots=True)
class Tempered:
    """Queries times a number that is made of each token's position in fp32.

    `early`: the numbers are cast to the queries' dtype before (Ministral 3), else the product is after (Llama 4), whose
    code names positions and numbers: two more results.
    """

    early: bool


@dataclass(frozen=True, slots=True)
class SigmoidRouter:
    """A linear layer over the experts, whose `top_k` best logits, and minus infinity in place of all others, are
    written into a new tensor and go through a sigmoid in fp32. Reads rows of the hidden state; leaves logits and
    scores of all experts."""

    weight: Weight
    top_k: int


@dataclass(frozen=True, slots=True)
class EveryExpert:
    """Experts that each see every token times its score (zero where it did not choose them), as batched products.

    Weights are [experts, in, out]. Reads rows of the hidden state, and scores; leaves the product of these two and what
    the experts made of it.
    """

    gate_up: Weight
    down: Weight
    act: ActKind

    @property
    def weights(self) -> tuple[Weight, Weight]:
        """Its parameters in order."""
        return (self.gate_up, self.down)


@dataclass(frozen=True, slots=True)
class SummedExperts:
    """The sum over experts of what they made, added in place to the second input."""
