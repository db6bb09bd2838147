"""gpt-oss: attention with sinks, alternately in a window, and experts with biases.

Source: transformers/models/gpt_oss/modeling_gpt_oss.py (5.24.0): GptOssDecoderLayer, GptOssExperts, GptOssTopKRouter.
"""

from __future__ import annotations

from trainledger.base.dims import Dim, Dims
from trainledger.model.decoder import Trunk, decoder, weights_of
from trainledger.model.families import moe
from trainledger.model.keys import Keys
from trainledger.model.parts import axis, norm
from trainledger.model.program import Block, Model, NormKind, Role, Rotary, Weight
from trainledger.model.self_attention import SelfAttention, heads_of, scores_of, self_attention

UNKNOWN = (
    "attention with sinks and clamped experts with biases are counted in weights, their activations are not covered"
)


def build(keys: Keys) -> Model:
    """The model of these keys."""
    hidden = axis(Dim.HIDDEN, keys.integer("hidden_size"))
    layers = keys.integer("num_hidden_layers")
    heads = heads_of(keys, hidden[0].size)
    norms = [norm(name, hidden, NormKind.RMS).weight for name in ("input_layernorm", "post_attention_layernorm")]
    sinks = Weight("self_attn.sinks", heads.dims()[:1], Role.BIAS)
    bias = keys.flag("attention_bias")
    attention = weights_of(self_attention(hidden, SelfAttention(heads, scores_of(keys, heads), None, bias, bias)))
    weights = moe.unique((*attention, sinks, *_experts(keys, hidden), *norms))
    _, top_k = moe.routed(keys)
    block = Block("model.layers", (), weights, tuple(range(layers)), top_k, UNKNOWN)
    return decoder(keys, "gpt-oss", (block,), Rotary(heads.width), Trunk(NormKind.RMS_LATE_CAST))


def _experts(keys: Keys, hidden: Dims) -> tuple[Weight, ...]:
    """Router with a bias; experts stored [experts, in, out], gate and up interleaved, each with a bias."""
    width = keys.integer(*moe.EXPERT_WIDTH, "intermediate_size")
    gate_up, down = moe.transposed(keys, "mlp.experts", hidden, width)
    router = moe.router_weight(keys, "mlp.router", hidden)
    count = router.dims[:1]
    return (
        router,
        Weight("mlp.router.bias", count, Role.ROUTER),
        gate_up,
        Weight("mlp.experts.gate_up_proj_bias", (*count, *gate_up.dims[-1:]), Role.EXPERT),
        down,
        Weight("mlp.experts.down_proj_bias", (*count, *hidden), Role.EXPERT),
    )
