"""Attention that a class of Transformers writes out itself, or calls PyTorch's own function for, and what stands around
it: taken heads, biases that fall with distance."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from trainledger.base.dims import Dims
from trainledger.model.operations import Attention

NAMED = ("scores", "high", "logits")  # what a module's code names until it returns, beside its result


class Written(StrEnum):
    """Whose code computes scores, softmax and values in Python."""

    FALCON = "falcon"  # scaled in place, the softmax in the hidden state's dtype
    FALCON_BIASED = "falcon-biased"  # scores in fp32, biases of each head added before they are scaled in place
    BLOOM = "bloom"  # one product adds the scores to the biases and scales them; the softmax in fp32
    MPT = "mpt"  # biases of each head in fp32 added to the scaled scores, masked by filling

    @property
    def biased(self) -> bool:
        """Whether biases by distance are added."""
        return self is not Written.FALCON

    @property
    def calls(self) -> bool:
        """Whether the class calls PyTorch's own function, too."""
        return self in (Written.FALCON, Written.FALCON_BIASED)


@dataclass(frozen=True, slots=True)
class WrittenAttention(Attention):
    """Attention as `how` writes it. PyTorch's own call is handed keys and values as they are: of fewer heads than the
    queries they are seen by all of them, which only its composite takes. `groups`: the key and value heads that were
    repeated before (0: none were)."""

    how: Written = field(kw_only=True)
    groups: int = 0


@dataclass(frozen=True, slots=True)
class HighAttention(Attention):
    """Attention that, written out in Python, casts queries and keys to fp32 first (GPT-J)."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Some of a projection's heads, picked by a list of their numbers: a copy, unlike a slice."""

    part: Dims


@dataclass(frozen=True, slots=True)
class Alibi:
    """Biases of each of `heads` that grow with a key's place, made once a forward: of a batch's mask and in the hidden
    state's dtype, or in fp32 for `keys` keys, whatever the sequence's length (0: of the batch). `masks`: they are
    written into the mask, one for each head; `filled`: the mask is turned into bools."""

    heads: int
    masks: bool = False
    keys: int = 0
    filled: bool = False
