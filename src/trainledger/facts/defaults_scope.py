"""Defaults of the stack, the task and the spread over ranks."""

from __future__ import annotations

from trainledger.facts import defaults_rl
from trainledger.facts.deepspeed import STAGES
from trainledger.facts.default_row import GIVEN, DefaultRow, Follows, Of
from trainledger.facts.default_words import (
    DEEPSPEED,
    FORMAT,
    MEGATRON,
    MEGATRONS,
    PEFT,
    PRETRAINERS,
    SHARDING,
    TITAN,
    TITANS,
    TRAINER,
    TRAINERS,
    framework,
)
from trainledger.facts.float8 import NO_COMPILE
from trainledger.facts.fsdp_qlora import NAME as FSDP_QLORA
from trainledger.facts.fsdp_qlora import SCRIPT
from trainledger.facts.litgpt import KNOWN as LITGPT
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import NEWEST_COMMIT, NEWEST_RELEASE
from trainledger.facts.torchtitan_days import NIGHTLIES, torch_of, torchtitan_of
from trainledger.facts.versions import NEWEST


def _of_script(package: str, version: str) -> DefaultRow:
    why = "the release that the script ran with"
    return DefaultRow(f"stack.versions.{package}", version, why, SCRIPT.source, (framework(FSDP_QLORA),))


SCOPE = (
    DefaultRow("stack.framework", "transformers", "the stack that plans mean when they name none", FORMAT),
    _of_script("torch", SCRIPT.torch),
    _of_script("transformers", SCRIPT.transformers),
    DefaultRow(
        "stack.versions.torchtitan",
        NO_COMPILE.torchtitan,
        "torchtitan when the prototype was brought into it",
        NO_COMPILE.source,
        (framework(TORCHTITAN), ("precision.fp8.kernels", (NO_COMPILE.kernels,))),
    ),
    DefaultRow(
        "stack.versions.torchtitan",
        Of("stack.versions.torch", torchtitan_of),
        "what torchtitan was when PyTorch's main branch left that release",
        NIGHTLIES[0].source,
        (framework(TORCHTITAN), ("stack.versions.torch", GIVEN)),
    ),
    DefaultRow(
        "stack.versions.torchtitan",
        NEWEST_COMMIT.release,
        "a chunked loss came after the newest release",
        NEWEST_COMMIT.source,
        (framework(TORCHTITAN), ("stack.loss", ("chunked",))),
    ),
    DefaultRow(
        "stack.versions.torchtitan",
        NEWEST_RELEASE.release,
        "the newest release known",
        NEWEST_RELEASE.source,
        (framework(TORCHTITAN),),
    ),
    DefaultRow(
        "stack.versions.torch",
        Of("stack.versions.torchtitan", torch_of),
        "what PyTorch's main branch was when that torchtitan was made",
        NIGHTLIES[0].source,
        (framework(TORCHTITAN),),
    ),
    DefaultRow("stack.versions.torch", NEWEST["torch"].version, "the newest version known", NEWEST["torch"].source),
    DefaultRow(
        "stack.versions.transformers",
        NEWEST["transformers"].version,
        "the newest version known",
        NEWEST["transformers"].source,
        (framework(*TRAINERS),),
    ),
    DefaultRow(
        "stack.versions.litgpt",
        LITGPT.version,
        "the release whose code the rules follow",
        LITGPT.source,
        (framework(LITGPT.name),),
    ),
    DefaultRow(
        "stack.versions.bitsandbytes",
        LITGPT.bitsandbytes,
        "the release that LitGPT asks for",
        LITGPT.source,
        (framework(LITGPT.name), ("quantization.kind", GIVEN)),
    ),
    _of_script("peft", SCRIPT.peft),
    _of_script("bitsandbytes", SCRIPT.bitsandbytes),
    DefaultRow("task", "pretrain", "the framework pre-trains", FORMAT, (framework(*PRETRAINERS),)),
    DefaultRow("task", "sft", "supervised training on whole sequences", FORMAT),
    DefaultRow("trainable", "none", "an adapter freezes the base model", PEFT, (("adapter.kind", GIVEN),)),
    DefaultRow("trainable", "all", "every weight is trained without an adapter", FORMAT),
)
PARALLEL = (
    DefaultRow("parallel.vpp", 1, "one model chunk per pipeline rank", FORMAT),
    DefaultRow("parallel.ep", 1, "experts are not spread over ranks", FORMAT),
    DefaultRow("parallel.sp", False, "sequence parallelism is off", MEGATRON, (framework(*MEGATRONS),)),
    DefaultRow("parallel.sp", False, "sequence parallelism is off", FORMAT),
    DefaultRow(
        "parallel.strategy",
        "megatron-ddp",
        "Megatron wraps every model in its own DDP",
        MEGATRON,
        (framework(*MEGATRONS),),
    ),
    DefaultRow("parallel.strategy", "none", "one data-parallel rank", FORMAT, (("parallel.dp", (1,)),)),
    DefaultRow(
        "parallel.strategy", "fsdp2", "data_parallel_shard_degree -1: all ranks shard", TITAN, (framework(*TITANS),)
    ),
    *defaults_rl.STRATEGY,
    DefaultRow("parallel.strategy", "ddp", "the Trainer wraps the model in DDP", TRAINER),
    DefaultRow(
        "parallel.shard",
        Follows("parallel.dp"),
        "the strategy shards over every data-parallel rank",
        FORMAT,
        (("parallel.strategy", SHARDING),),
    ),
    DefaultRow("parallel.shard", 1, "the strategy does not shard", FORMAT),
    DefaultRow("parallel.schedule", None, "no pipeline", FORMAT, (("parallel.pp", (1,)),)),
    DefaultRow("parallel.schedule", "1f1b", "the pipeline's default schedule", MEGATRON, (("parallel.vpp", (1,)),)),
    DefaultRow("parallel.schedule", "interleaved", "several model chunks per rank", MEGATRON),
    DefaultRow(
        "parallel.reshard_after_forward",
        True,
        "policy `default` reshards without a pipeline",
        TITAN,
        (framework(*TITANS), ("parallel.pp", (1,))),
    ),
    DefaultRow(
        "parallel.reshard_after_forward",
        False,
        "policy `default` keeps gathered weights under a pipeline",
        TITAN,
        (framework(*TITANS),),
    ),
    DefaultRow("parallel.reshard_after_forward", True, "gathered weights are freed after forward", FORMAT),
    *(
        DefaultRow(
            f"offload.{kind}",
            Follows(f"parallel.options.{section}.device"),
            "the strategy's own section says where",
            DEEPSPEED,
            ((f"parallel.options.{section}.device", ("cpu", "nvme")), ("parallel.strategy", tuple(STAGES))),
        )
        for kind, section in (("optimizer", "offload_optimizer"), ("params", "offload_param"))
    ),
    DefaultRow("offload.optimizer", None, "optimizer states stay on the device", FORMAT),
    DefaultRow("offload.params", None, "weights stay on the device", FORMAT),
    DefaultRow("offload.activations", None, "activations stay on the device", FORMAT),
)
