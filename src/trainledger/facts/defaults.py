"""The framework's default of every key that a plan may leave out, in the order in which they are filled in.

Rows of one key stand from the most to the least specific: the first that applies is taken. Later rows may ask for
the values of earlier keys.
"""

from __future__ import annotations

from trainledger.facts import defaults_megatron, defaults_rl
from trainledger.facts.allocator_settings import ALLOCATOR_TEXTS
from trainledger.facts.colossal import LOW_LEVEL
from trainledger.facts.default_row import ABSENT, GIVEN, DefaultRow, Of
from trainledger.facts.default_words import (
    BNB,
    CHECKPOINTING,
    CHECKPOINTING_4,
    EAGER_CLASSES,
    FORMAT,
    GPTQ,
    LORA,
    LOSS,
    MEGATRON,
    MEGATRONS,
    TITAN,
    TITAN_CONFIGS,
    TORCH_SDPA,
    TRAINER,
    TRAINERS,
    V5,
    framework,
)
from trainledger.facts.defaults_adapter import RANKS, TARGETS
from trainledger.facts.defaults_scope import PARALLEL, SCOPE
from trainledger.facts.defaults_training import PRECISION, UPDATE
from trainledger.facts.litgpt import HEAD_CHUNKS
from trainledger.facts.litgpt import NAME as LITGPT
from trainledger.facts.peft import LORA_KINDS
from trainledger.facts.phases import CHAT_PPO
from trainledger.facts.preference_row import FUSED as HEAD
from trainledger.facts.preferences import PREFERENCES
from trainledger.facts.preferences_front import FRONT
from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.facts.torchtitan import OP, RUN, allocator_of

COLOSSAL = framework(LOW_LEVEL.framework)
DEEPSPEED = "deepspeed"  # a script of its own around a model of Transformers
AWAY = {"states": {"training": "offloaded", "critic training": "offloaded"}}
REST = (
    DefaultRow(
        "roles",
        {"reference": AWAY, "critic": {}, "reward": AWAY},
        "PPOTrainer has all of them, of one model; offload_inference_models True",
        CHAT_PPO.source,
        (COLOSSAL, ("task", (CHAT_PPO.task,))),
    ),
    *(
        DefaultRow(f"stack.versions.{name}", value, "what ColossalChat asks for", LOW_LEVEL.source, (COLOSSAL,))
        for name, value in (("colossalai", LOW_LEVEL.release), ("transformers", LOW_LEVEL.transformers))
    ),
    *TARGETS,
    DefaultRow("adapter.r", 8, "r = 8", LORA, (("adapter.kind", LORA_KINDS),)),
    *RANKS,
    DefaultRow("adapter.dropout", 0.0, "no dropout", LORA, (("adapter.kind", GIVEN),)),
    DefaultRow(
        "quantization.double", False, "bnb_4bit_use_double_quant False", BNB, (("quantization.kind", ("nf4", "fp4")),)
    ),
    DefaultRow(
        "quantization.group_size", 128, "group_size 128", GPTQ, (("quantization.kind", ("gptq4", "gptq8", "awq4")),)
    ),
    DefaultRow("batch.accumulation", 1, "one micro-batch per step", TRAINER),
    DefaultRow("batch.expert_load", 1.0, "every expert takes its mean share", FORMAT),
    DefaultRow(
        "stack.attention",
        "fused",
        "attention_backend auto: Transformer Engine chooses",
        MEGATRON,
        (framework(*MEGATRONS),),
    ),
    DefaultRow(
        "stack.attention",
        "eager",
        "the class knows no kernel, and writes attention out in Python",
        EAGER_CLASSES,
        (framework(*TRAINERS, DEEPSPEED), ("model.model_type", ("bloom", "mpt"))),
    ),
    DefaultRow("stack.attention", "sdpa", "PyTorch's scaled_dot_product_attention", TORCH_SDPA),
    DefaultRow(
        "stack.recompute",
        {"kind": "full"},
        "activation_checkpoint full in the configurations of gpt-oss",
        TITAN_CONFIGS,
        (framework(TORCHTITAN), ("model.model_type", ("gpt_oss",))),
    ),
    DefaultRow(
        "stack.recompute",
        {"kind": "selective", "policy": OP},
        "activation_checkpoint selective by operation, as configurations of dense models have it",
        TITAN_CONFIGS,
        (framework(TORCHTITAN),),
    ),
    DefaultRow("stack.recompute", {"kind": "none"}, "nothing is recomputed", TRAINER),
    DefaultRow(
        "stack.recompute.reentrant",
        False,
        "use_reentrant False",
        CHECKPOINTING,
        (("stack.recompute.kind", ("full",)), framework(*TRAINERS, DEEPSPEED)),
        V5,
    ),
    *(
        DefaultRow(
            "stack.recompute.reentrant",
            True,
            "use_reentrant True",
            CHECKPOINTING_4,
            (("stack.recompute.kind", ("full",)), one),
        )
        for one in (framework(*TRAINERS, DEEPSPEED), COLOSSAL)
    ),
    DefaultRow(
        "stack.recompute.reentrant",
        True,
        "Megatron's own checkpoint function",
        MEGATRON,
        (("stack.recompute.kind", ("full",)), framework(*MEGATRONS)),
    ),
    DefaultRow(
        "stack.recompute.reentrant",
        False,
        "the variant without reentrant autograd",
        TITAN,
        (("stack.recompute.kind", ("full",)),),
    ),
    DefaultRow(
        "stack.loss",
        "vocab-parallel",
        "logits stay sharded over tensor parallelism",
        MEGATRON,
        (framework(*MEGATRONS),),
    ),
    DefaultRow(
        "stack.loss", "chunked", "the head and its loss in chunks of tokens", HEAD_CHUNKS.source, (framework(LITGPT),)
    ),
    *(
        DefaultRow(
            "stack.loss",
            "fused-linear",
            "the trainer runs a fused head",
            row.source,
            (
                framework(*TRAINERS, DEEPSPEED),
                ("task", (row.task,)),
                (f"stack.versions.{row.package}", GIVEN),
                *((f"stack.versions.{one.package}", ABSENT) for one in FRONT if one.task == row.task),
            ),
            ((row.package, row.since),),
        )
        for row in PREFERENCES
        if row.form == HEAD
    ),
    DefaultRow("stack.loss", "full-fp32", "logits of every position are cast to float32", LOSS),
    DefaultRow(
        "stack.allocator",
        Of("stack.versions.torchtitan", allocator_of),
        "run_train.sh, which starts runs on one node",
        RUN.source,
        (
            framework(TORCHTITAN),
            ("parallel.world", tuple(range(1, RUN.devices + 1))),
            *((f"stack.env.{name}", ABSENT) for name in ALLOCATOR_TEXTS),
        ),
    ),
    DefaultRow("stack.compile", False, "torch.compile is off", TRAINER),
)

DEFAULTS: tuple[DefaultRow, ...] = (
    *SCOPE, *defaults_megatron.PARALLEL, *PARALLEL, *defaults_megatron.PRECISION, *defaults_rl.PRECISION, *PRECISION,
    *defaults_rl.UPDATE, *UPDATE, *defaults_megatron.REST, *defaults_rl.STACK, *REST, *defaults_megatron.KERNELS,
)  # fmt: skip
