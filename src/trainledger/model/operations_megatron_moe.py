"""The operations of Megatron-Core's mixture of experts: which experts tokens take, the way there and back, the experts.

Source: megatron/core/transformer/moe/{moe_layer,router,token_dispatcher,experts}.py (0.14 to 0.19).
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.model.weights import Weight


@dataclass(frozen=True, slots=True)
class Routes:
    """TopKRouter: of the hidden states, probabilities and a map of every token's experts; `top_k` experts a token."""

    weight: Weight
    top_k: int
    bias: Weight | None = None


@dataclass(frozen=True, slots=True)
class Dispatched:
    """Tokens sent to the ranks of their experts. Reads hidden states, probabilities and map; makes the tokens that this
    rank sends, tokens and probabilities that it receives, and the order of what it sends."""

    top_k: int


@dataclass(frozen=True, slots=True)
class GroupedExperts:
    """This rank's experts over the tokens received, in order of experts: `up`, the function (`gated`: of a half of its
    columns, times the other), times the token's probability, `down`. Weights, and where there are any the two `biases`,
    are stacks of all experts'."""

    up: Weight
    down: Weight
    gated: bool
    top_k: int
    expert: bool = True
    biases: tuple[Weight, ...] = ()


@dataclass(frozen=True, slots=True)
class Returned:
    """The results of tokens sent back to their ranks; of how many experts each token took `top_k`."""

    experts: int
    top_k: int


@dataclass(frozen=True, slots=True)
class Combined:
    """The results of every token summed, in the order of tokens."""

    experts: int
    top_k: int


@dataclass(frozen=True, slots=True)
class Shared:
    """The routed experts' sum plus that of the shared ones."""


MoeSpec = Routes | Dispatched | GroupedExperts | Returned | Combined | Shared
EXPERTS = "mlp.experts"


def one_of(stack: Weight, at: int, grouped: bool) -> Weight:
    """One expert's own weight of a stack, named as the module is that has it: one grouped layer for all, or one
    feed-forward for each."""
    layer, kind = stack.name.removeprefix(f"{EXPERTS}.").rsplit(".", 1)
    name = f"{EXPERTS}.{layer}.{kind}{at}" if grouped else f"{EXPERTS}.local_experts.{at}.{layer}.{kind}"
    return Weight(name, stack.dims[1:], stack.role)


def taken_apart(weights: tuple[Weight, ...], grouped: bool) -> tuple[Weight, ...]:
    """The weights with stacks taken apart, in the order of Megatron's modules."""
    stacks = [one for one in weights if one.name.startswith(f"{EXPERTS}.")]
    layers = [[one for one in stacks if one.name.rsplit(".", 1)[0] == name] for name in _layers(stacks)]
    found: list[Weight] = []
    for weight in weights:
        if weight not in stacks:
            found.append(weight)
        elif weight == stacks[0]:
            count = range(weight.dims[0].size)
            if grouped:
                found += [one_of(stack, at, True) for layer in layers for at in count for stack in layer]
            else:
                found += [one_of(stack, at, False) for at in count for layer in layers for stack in layer]
    return tuple(found)


def _layers(stacks: list[Weight]) -> list[str]:
    return list(dict.fromkeys(one.name.rsplit(".", 1)[0] for one in stacks))
