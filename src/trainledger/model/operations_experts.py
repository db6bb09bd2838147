"""Routed experts as operations: the router, grouped products, and a loop over experts."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.model.operations import ActKind
from trainledger.model.weights import LowRank, Weight


@dataclass(frozen=True, slots=True)
class Router:
    """Scores of all experts per token and the `top_k` best: logits, softmax in fp32, their choice.

    `normalise`: the chosen scores are divided by their sum; `upcast`: the logits are cast to fp32 on their own and the
    scores stay fp32 (Mixtral), else softmax casts and the scores are cast back (Qwen, OLMoE): where `early` to
    the hidden state's dtype, else to the logits'.
    Reads the hidden state; leaves logits, scores and expert numbers. `adapter`: what is added to its linear layer,
    where it is one (before Transformers 5.0).
    """

    weight: Weight
    top_k: int
    normalise: bool
    upcast: bool
    early: bool = False
    adapter: LowRank | None = None


@dataclass(frozen=True, slots=True)
class LowRouter:
    """Sigmoids of a linear layer's result, in its dtype, and the `top_k` best, times a Python number. `corrected`: a
    buffer is added to them for the choice alone. `normalise`: they are divided by their sum. Reads rows of the hidden
    state; leaves logits, scores and expert numbers."""

    weight: Weight
    top_k: int
    corrected: bool
    normalise: bool


@dataclass(frozen=True, slots=True)
class Experts:
    """Routed experts as grouped matrix products over tokens sorted by expert; weights are [experts, out, in].

    Reads the hidden state, the scores and the expert numbers. Every token takes `top_k` experts, so sizes do not
    depend on how even the routing is. `up`: its weight, where it does not stand behind that of the gate in one. `over`:
    the sum is written among the rows of so many ranks, of whose tokens these are one's. `adds`: the gradient of what
    experts read is added up over ranks.
    """

    top_k: int
    gate_up: Weight
    down: Weight
    act: ActKind
    up: Weight | None = None
    over: int = 1
    adds: bool = False


KEPT = ("scores in the loop", "mask", "found", "choices", "tokens", "state", "weighed")


@dataclass(frozen=True, slots=True)
class Looped:
    """Routed experts one after the other, each a gated feed-forward of its own over the tokens that chose it.

    `experts`: the weights of gate, up and down of each; `load`: the rows of the fullest in means of all, 0 as many as
    there are tokens; `finds`: those that have tokens are found before the loop. What the code names in the loop is
    bound to `KEPT` besides. `adapters`: what is added to each weight, in the order of `weights` (empty: to none).
    """

    top_k: int
    experts: tuple[tuple[Weight, Weight, Weight], ...]
    act: ActKind
    load: float
    finds: bool
    adapters: tuple[LowRank | None, ...] = ()

    @property
    def weights(self) -> tuple[Weight, ...]:
        """All weights, expert by expert."""
        return tuple(weight for expert in self.experts for weight in expert)
