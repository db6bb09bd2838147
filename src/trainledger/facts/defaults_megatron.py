"""What Megatron-Core's runs have where a plan says nothing: under Megatron-LM, Megatron-Bridge and NeMo."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.default_row import GIVEN, Condition, DefaultRow, Follows
from trainledger.facts.default_words import MEGATRON, framework
from trainledger.facts.megatron import FRAMEWORKS
from trainledger.facts.transformer_engine import NAME as ENGINE

CORE = framework(*FRAMEWORKS)
BRIDGE, NEMO = framework("megatron-bridge"), framework("nemo")
CONFIG = Source("Megatron-Core TransformerConfig", "megatron/core/transformer/transformer_config.py", "2026-08")
PROVIDERS = "src/megatron/bridge/models/{gpt_provider,deepseek/*_bridge,qwen/qwen3_moe_bridge}.py"
BRIDGE_MODEL = Source("Megatron-Bridge providers, what they leave on", PROVIDERS, "067f987, 2026-08")
BRIDGE_RECIPE = Source("Megatron-Bridge recipes", "src/megatron/bridge/recipes/common.py", "067f987, 2026-08")
NEMO_MODEL = Source("NeMo GPTConfig", "nemo/collections/llm/gpt/model/base.py", "2.x")
NEMO_OPTIM = Source("NeMo recipes' optimizer", "nemo/collections/llm/recipes/optim/adam.py", "2.x")
_EXPERTS, _LATENT = ("model.num_experts", GIVEN), ("model.kv_lora_rank", GIVEN)
_KIND = "moe_router_load_balancing_type"


def _option(name: str, value: object, why: str, source: Source, *when: Condition) -> DefaultRow:
    return DefaultRow(f"parallel.options.{name}", value, why, source, (*when, _EXPERTS))


PARALLEL = (
    DefaultRow("parallel.strategy", "megatron-distopt", "use_distributed_optimizer True", BRIDGE_RECIPE, (BRIDGE,)),
    DefaultRow("parallel.strategy", "megatron-distopt", "a distributed optimizer", NEMO_OPTIM, (NEMO,)),
    _option("moe_token_dispatcher_type", "alltoall", "alltoall", BRIDGE_MODEL, BRIDGE),
    _option("moe_token_dispatcher_type", "allgather", "allgather", CONFIG, CORE),
    _option("moe_grouped_gemm", True, "one product for all experts of a rank", BRIDGE_MODEL, BRIDGE),
    _option("moe_grouped_gemm", False, "experts run one after the other", CONFIG, CORE),
    _option("moe_permute_fusion", True, "one kernel permutes tokens", BRIDGE_MODEL, BRIDGE),
    _option("moe_permute_fusion", False, "PyTorch's operations permute tokens", CONFIG, CORE),
    _option("moe_router_dtype", "fp32", "fp32", BRIDGE_MODEL, BRIDGE, _LATENT),
    _option(_KIND, "seq_aux_loss", "seq_aux_loss", BRIDGE_MODEL, BRIDGE, _LATENT),
    _option(_KIND, "aux_loss", "aux_loss", BRIDGE_MODEL, BRIDGE),
    _option(_KIND, "none", "moe_aux_loss_coeff is 0, with which aux_loss makes nothing", CONFIG, CORE),
)
PRECISION = (
    DefaultRow("precision.autocast", False, "weights are 16-bit: no torch.autocast", MEGATRON, (CORE,)),
    DefaultRow(
        "precision.gradients",
        Follows("precision.weights"),
        "only bf16 turns accumulate_allreduce_grads_in_fp32 on by itself",
        MEGATRON,
        (CORE, ("precision.weights", ("fp16", "fp32"))),
    ),
    DefaultRow("precision.master", None, "fp32 weights are updated as they are", MEGATRON,
               (CORE, ("precision.weights", ("fp32",)))),
    DefaultRow("precision.grad_scaler", True, "fp16 scales the loss", MEGATRON,
               (CORE, ("precision.compute", ("fp16",)))),
    DefaultRow("precision.grad_scaler", False, "only fp16 scales the loss", MEGATRON, (CORE,)),
)  # fmt: skip
REST = (
    DefaultRow(
        "stack.attention",
        "unfused",
        "Megatron's own layers have a core attention of their own",
        CONFIG,
        (CORE, ("stack.options.transformer_impl", ("local",))),
    ),
    DefaultRow("batch.accumulation", 1, "global_batch_size is micro_batch_size x dp", MEGATRON, (CORE,)),
    DefaultRow("stack.recompute", {"kind": "none"}, "recompute_granularity is not set", MEGATRON, (CORE,)),
    DefaultRow("stack.compile", False, "layers are not compiled whole", MEGATRON, (CORE,)),
    DefaultRow("stack.loss", "vocab-parallel-te", "cross_entropy_fusion_impl te", BRIDGE_MODEL, (BRIDGE, _LATENT)),
    DefaultRow("stack.loss", "vocab-parallel-fused", "cross_entropy_loss_fusion True", BRIDGE_MODEL, (BRIDGE,)),
    DefaultRow("stack.loss", "vocab-parallel-fused", "cross_entropy_loss_fusion True", NEMO_MODEL, (NEMO,)),
)
KERNELS = (
    DefaultRow(
        "stack.kernels", [ENGINE], "transformer_impl transformer_engine", MEGATRON,
        (CORE, ("stack.attention", ("fused", "flash"))),
    ),
)  # fmt: skip
