"""Defaults of precision and of the optimizer."""

from __future__ import annotations

from trainledger.facts import defaults_rl
from trainledger.facts.colossal import LOW_LEVEL, SCRIPTS
from trainledger.facts.default_row import GIVEN, DefaultRow, Follows
from trainledger.facts.default_words import (
    ACCELERATE_FSDP,
    DEEPSPEED,
    DEEPSPEED_CPU,
    FOREACH,
    FORMAT,
    FROM_PRETRAINED,
    FROM_PRETRAINED_4,
    FSDP,
    FUSED,
    HALF,
    MEGATRON,
    MEGATRON_OPTIM,
    MEGATRON_STRATEGIES,
    MEGATRONS,
    TITAN,
    TITANS,
    TORCH_OPTIM,
    TRAINER,
    TRAINER_OPTIM,
    TRAINERS,
    V5,
    ZERO,
    framework,
)
from trainledger.facts.defaults_adapter import ADAPTER_DTYPES
from trainledger.facts.peft import UPCAST
from trainledger.facts.torchtune import NAME as TORCHTUNE
from trainledger.facts.torchtune import RECIPES

PRECISION = (
    DefaultRow(
        "precision.weights", "fp32", "master copy of the shards: training.dtype float32", TITAN, (framework(*TITANS),)
    ),
    DefaultRow(
        "precision.weights",
        Follows("model.dtype"),
        "from_pretrained loads the checkpoint's dtype",
        FROM_PRETRAINED,
        (framework(*TRAINERS), ("model.dtype", GIVEN)),
        V5,
    ),
    DefaultRow(
        "precision.weights",
        "bf16",
        "from_pretrained loads the checkpoint's dtype, which is taken to be bf16",
        FROM_PRETRAINED,
        (framework(*TRAINERS),),
        V5,
    ),
    DefaultRow(
        "precision.weights",
        "fp32",
        "from_pretrained loads float32 unless torch_dtype is given",
        FROM_PRETRAINED_4,
        (framework(*TRAINERS),),
    ),
    DefaultRow("precision.weights", "bf16", "16-bit training is assumed", FORMAT),
    DefaultRow("precision.autocast", False, "no torch.autocast", TRAINER),
    DefaultRow("precision.compute", "bf16", "mixed_precision_param bfloat16", TITAN, (framework(*TITANS),)),
    DefaultRow(
        "precision.compute", "bf16", "products of 8-bit weights read bf16", FORMAT, (("precision.weights", ("fp8",)),)
    ),
    DefaultRow(
        "precision.compute",
        "bf16",
        "autocast of float32 weights, taken to be to bf16",
        TRAINER,
        (("precision.autocast", (True,)), ("precision.weights", ("fp32",))),
    ),
    DefaultRow("precision.compute", Follows("precision.weights"), "products read the weights as they are", FORMAT),
    *ADAPTER_DTYPES,
    DefaultRow(
        "precision.gradients",
        Follows("adapter.dtype"),
        "a gradient has its adapter weight's dtype",
        TORCH_OPTIM,
        (("adapter.kind", GIVEN),),
    ),
    DefaultRow(
        "precision.gradients",
        "fp32",
        "bf16 accumulates gradients in fp32 unless grad_reduce_in_bf16",
        MEGATRON,
        (framework(*MEGATRONS), ("precision.weights", ("bf16", "fp8"))),
    ),
    DefaultRow(
        "precision.gradients",
        "fp32",
        "what is trained is cast to fp32, and a gradient has its weight's dtype",
        UPCAST.source,
        ((f"stack.options.{UPCAST.option}", (True,)), ("parallel.strategy", ("none", "ddp"))),
    ),
    DefaultRow("precision.gradients", Follows("precision.weights"), "a gradient has its weight's dtype", TORCH_OPTIM),
    DefaultRow("precision.main_gradients", None, "no second gradient buffer", FORMAT),
    DefaultRow("precision.reduce", None, "nothing is reduced", FORMAT, (("parallel.world", (1,)),)),
    DefaultRow("precision.reduce", "fp32", "mixed_precision_reduce float32", TITAN, (framework(*TITANS),)),
    DefaultRow(
        "precision.reduce",
        Follows("precision.weights"),
        "communication_data_type follows the weights",
        DEEPSPEED,
        (("parallel.strategy", ZERO),),
    ),
    DefaultRow(
        "precision.reduce",
        Follows("precision.compute"),
        "FSDP reduces in the dtype of products unless its policy says otherwise",
        ACCELERATE_FSDP,
        (framework("transformers"), ("parallel.strategy", FSDP)),
    ),
    DefaultRow("precision.reduce", Follows("precision.gradients"), "gradients are reduced as they are", FORMAT),
    DefaultRow(
        "precision.master",
        "fp32",
        "16-bit weights are updated through a float32 copy",
        MEGATRON_OPTIM,
        (("parallel.strategy", MEGATRON_STRATEGIES), ("precision.weights", HALF)),
    ),
    DefaultRow(
        "precision.master", "fp32", "ZeRO keeps a float32 copy of its shard", DEEPSPEED, (("parallel.strategy", ZERO),)
    ),
    DefaultRow("precision.master", None, "no copy besides the weights", TRAINER),
    DefaultRow("precision.norms", None, "norms have the weights' dtype", FORMAT),
    DefaultRow("precision.grad_scaler", True, "fp16 scales the loss", TRAINER, (("precision.compute", ("fp16",)),)),
    DefaultRow("precision.grad_scaler", False, "only fp16 scales the loss", TRAINER),
)
UPDATE = (
    DefaultRow("optimizer.name", "adam", "--optimizer adam", MEGATRON, (framework(*MEGATRONS),)),
    DefaultRow("optimizer.name", "adamw", "the default of every other framework", TRAINER),
    DefaultRow(
        "optimizer.implementation",
        "cpu",
        "states on the host are stepped there",
        DEEPSPEED_CPU,
        (("offload.optimizer", GIVEN), ("optimizer.name", ("adamw", "adam"))),
    ),
    defaults_rl.FUSED_ADAM,
    DefaultRow(
        "optimizer.implementation",
        "apex-fused",
        "fused Adam of Transformer Engine or Apex",
        MEGATRON_OPTIM,
        (framework(*MEGATRONS), ("optimizer.name", ("adam", "adamw", "sgd", "sgd-momentum"))),
    ),
    DefaultRow(
        "optimizer.implementation",
        "fused",
        "implementation fused",
        TITAN,
        (framework("torchtitan"), ("optimizer.name", ("adam", "adamw"))),
    ),
    DefaultRow(
        "optimizer.implementation",
        "fused",
        "optimizer.fused True",
        RECIPES,
        (framework(TORCHTUNE), ("optimizer.name", ("adamw", "adam"))),
    ),
    DefaultRow(
        "optimizer.implementation",
        "fused",
        "adamw_torch_fused from Transformers 4.54 on with PyTorch 2.8",
        TRAINER_OPTIM,
        (framework(*TRAINERS), ("optimizer.name", ("adamw",))),
        FUSED,
    ),
    DefaultRow(
        "optimizer.implementation",
        "foreach",
        "PyTorch's default on a CUDA device",
        TORCH_OPTIM,
        (("optimizer.name", FOREACH),),
    ),
    DefaultRow("optimizer.implementation", None, "the optimizer has one implementation", FORMAT),
    DefaultRow("optimizer.in_backward", False, "the step follows the whole backward", FORMAT),
    DefaultRow("optimizer.grad_clip", 1.0, "max_grad_norm 1.0", TRAINER, (framework(*TRAINERS),)),
    DefaultRow("optimizer.grad_clip", 1.0, "clip_grad 1.0", MEGATRON, (framework(*MEGATRONS),)),
    DefaultRow("optimizer.grad_clip", 1.0, "max_norm 1.0", TITAN, (framework("torchtitan"),)),
    DefaultRow(
        "optimizer.grad_clip", 1.0, "--grad_clip 1.0 of its scripts", SCRIPTS, (framework(LOW_LEVEL.framework),)
    ),
    DefaultRow("optimizer.grad_clip", None, "gradient clipping is off", DEEPSPEED),
)
