"""A layer's parameters by the names that Megatron-Core's modules register them under.

Transformer Engine joins a norm with the column-parallel layer that alone reads it, in a module that registers the
norm's weights first. A layer that predicts a further token has a whole layer inside.
Source: megatron/core/models/gpt/gpt_layer_specs.py, get_gpt_layer_with_transformer_engine_spec;
transformer/multi_token_prediction.py, MultiTokenPredictionLayer (0.12 to 2026-08);
transformer_engine/pytorch/module/layernorm_linear.py, LayerNormLinear.__init__ (2.5 to 2.17).
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.facts.megatron_buffers import FURTHER
from trainledger.ledger.rules_te import joined
from trainledger.ledger.software import Software
from trainledger.model.operations_megatron import NormalisedParallel
from trainledger.model.program import Block

Naming = Callable[[str], str]  # from an operation's name for a parameter to the module's


def in_layer(block: Block, software: Software) -> Naming:
    """Names within a layer of the block."""
    parts = dict[str, str]()
    for op in joined(block.ops, software):
        if isinstance(op.spec, NormalisedParallel):
            norm, module = op.spec.norm, op.spec.linear.weight.name.rpartition(".")[0]
            for weight in (norm.weight, norm.bias):
                if weight is not None:
                    parts[weight.name] = f"{module}.layer_norm_{weight.name.rpartition('.')[2]}"
    return lambda name: parts.get(name, name)


def in_further(block: Block, software: Software, release: str) -> Naming:
    """Names within a layer of the block that predicts a further token."""
    own, inner = in_layer(block, software), FURTHER.inner(release)
    return lambda name: name if name.startswith(FURTHER.own) else inner + own(name)
