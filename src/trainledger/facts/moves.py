"""Advice: every change that is tried of a plan, those over ranks here. A new one is a row."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.megatron import FRAMEWORKS as MEGATRONS
from trainledger.facts.move_row import LEVELS, OUT, OWN, AtLeast, Move, Price, Times
from trainledger.facts.moves_beyond import EVALUATION
from trainledger.facts.moves_memory import MEMORY_MOVES

__all__ = ["LEVELS", "MOVES", "Move"]

ZERO = Source("ZeRO", "arXiv:1910.02054, sections 5 and 7", "2020-05")
ZERO_JSON = Source("DeepSpeed configuration, zero_optimization", "deepspeed/runtime/zero/config.py", "0.19.6")
OFFLOAD = Source("ZeRO-Offload", "arXiv:2101.06840", "2021-01")
INFINITY = Source("ZeRO-Infinity", "arXiv:2104.07857", "2021-04")
FSDP = Source("PyTorch FSDP", "arXiv:2304.11277; docs: torch.distributed.fsdp", "2023-04")
DDP = Source("PyTorch DistributedDataParallel", "torch/nn/parallel/distributed.py, class docstring", "2.13")
MEGATRON = Source("Megatron-LM", "arXiv:1909.08053, 2104.04473", "2021-04")
SEQUENCE = Source(
    "Reducing Activation Recomputation in Large Transformer Models", "arXiv:2205.05198, section 4", "2022-05"
)
RING = Source("Ring Attention", "arXiv:2310.01889", "2023-10")
EXPERTS = Source("GShard", "arXiv:2006.16668", "2020-06")
TUNE = Source("torchtune activation offloading", "torchtune/training/_activation_offloading.py", "v0.6")

TILES = Source(
    "DeepSpeed Ulysses long-sequence training", "deepspeed/runtime/sequence_parallel/ulysses_sp.py, TiledMLP", "0.17.2"
)

LONG = 16384  # tokens: below them an MLP is a tile or a few of most models
STRATEGY, FRAMEWORK, OPTIONS = "parallel.strategy", "stack.framework", "parallel.options"
TRAINER = ("transformers", "deepspeed")
SHARDED = ("zero1", "zero2", "zero3", "fsdp1", "fsdp2", "hsdp")
MANY = ("parallel.dp", AtLeast(2))
PLAIN = ("transformers", "torch")
FULLY = (*PLAIN, "torchtune", "torchtitan")
TENSOR = ("transformers", "torchtitan", *MEGATRONS)
FREED = (
    ("precision.reduce", OUT),
    ("precision.master", OUT),
    ("parallel.shard", OUT),
    ("stack.framework", "deepspeed"),
    ("optimizer.grad_clip", OWN),  # the Trainer hands both to DeepSpeed
    ("optimizer.implementation", OWN),
)
HALF_MACHINE = 4  # ranks: twice as many are the devices of one machine (HGX boards hold 8)
HALF_DP = (
    ("parallel.dp", Times(1, 2)),
    ("parallel.world", Times()),
    ("parallel.shard", OUT),
    ("batch.accumulation", Times(2)),
)

SHARDING = (
    Move(
        "ZeRO-1: optimizer states sharded", "sharding", ((STRATEGY, "zero1"), *FREED), Price.FREE, ZERO,
        ((STRATEGY, ("ddp",)), MANY, (FRAMEWORK, TRAINER)), needs="DeepSpeed",
    ),
    Move(
        "ZeRO-2: gradients sharded too", "sharding", ((STRATEGY, "zero2"), *FREED), Price.FREE, ZERO,
        ((STRATEGY, ("ddp", "zero1")), MANY, (FRAMEWORK, TRAINER)), needs="DeepSpeed",
    ),
    Move(
        "ZeRO-3: weights sharded too", "sharding", ((STRATEGY, "zero3"), *FREED), Price.TRAFFIC, ZERO,
        ((STRATEGY, ("ddp", "zero1", "zero2")), MANY, (FRAMEWORK, TRAINER)), needs="DeepSpeed",
    ),
    Move(
        "FSDP2: weights, gradients and states sharded", "sharding",
        ((STRATEGY, "fsdp2"), ("parallel.shard", OUT), ("precision.reduce", OUT), (OPTIONS, OUT)),
        Price.TRAFFIC, FSDP,
        ((STRATEGY, ("none", "ddp", "hsdp", "fsdp1-noshard")), MANY, (FRAMEWORK, FULLY)),
    ),
    Move(
        "distributed optimizer", "sharding", ((STRATEGY, "megatron-distopt"),), Price.FREE, MEGATRON,
        ((STRATEGY, ("megatron-ddp",)), MANY),
    ),
    Move(
        "weights freed after their forward", "reshard", (("parallel.reshard_after_forward", True),), Price.TRAFFIC,
        FSDP,
        (("parallel.reshard_after_forward", (False,)), (STRATEGY, ("fsdp1", "fsdp2", "hsdp"))),
    ),
    Move(
        "each layer wrapped by itself", "wrapping", (("parallel.options.auto_wrap_policy", "TRANSFORMER_BASED_WRAP"),),
        Price.FREE, FSDP,
        (("parallel.options.auto_wrap_policy", ("NO_WRAP", "SIZE_BASED_WRAP")), (STRATEGY, ("fsdp1", "fsdp2", "hsdp"))),
    ),
    Move(
        "gradients reduced at every micro-batch", "sync", (("parallel.options.no_sync", False),), Price.TRAFFIC, FSDP,
        ((STRATEGY, ("fsdp1", "fsdp2", "hsdp")), ("batch.accumulation", AtLeast(2))),
    ),
    Move(
        "no weights gathered ahead", "prefetch",
        (("parallel.options.backward_prefetch", "NO_PREFETCH"), ("parallel.options.forward_prefetch", False)),
        Price.TRAFFIC, FSDP, ((STRATEGY, ("fsdp1",)),),
    ),
)  # fmt: skip

BUCKETS = (
    Move(
        "gradients as views of their buckets", "buckets", (("parallel.options.gradient_as_bucket_view", True),),
        Price.FREE, DDP,
        ((STRATEGY, ("ddp",)), ("parallel.options.gradient_as_bucket_view", (None, False)), (FRAMEWORK, PLAIN)),
    ),
    Move(
        "reduction in buckets of 50 million elements", "buckets",
        (("parallel.options.reduce_bucket_size", 50_000_000),), Price.TRAFFIC, ZERO_JSON,
        ((STRATEGY, ("zero1", "zero2", "zero3")),),
    ),
    Move(
        "reduction that is not overlapped", "overlap", (("parallel.options.overlap_comm", False),), Price.TRAFFIC,
        ZERO_JSON, ((STRATEGY, ("zero1", "zero2", "zero3")), ("parallel.options.overlap_comm", (None, True))),
    ),
    Move(
        "at most 100 million weights gathered", "live",
        (("parallel.options.stage3_max_live_parameters", 100_000_000),
         ("parallel.options.stage3_max_reuse_distance", 100_000_000),
         ("parallel.options.stage3_prefetch_bucket_size", 10_000_000)),
        Price.TRAFFIC, ZERO_JSON, ((STRATEGY, ("zero3",)),),
    ),
    Move(
        "update in groups of 100 million weights", "groups", (("parallel.options.sub_group_size", 100_000_000),),
        Price.LAUNCHES, ZERO_JSON, ((STRATEGY, ("zero3",)),),
    ),
)  # fmt: skip

DEGREES = (
    Move(
        "sequence parallelism", "sp", (("parallel.sp", True),), Price.FREE, SEQUENCE,
        (("parallel.tp", AtLeast(2)), ("parallel.sp", (False,))),
    ),
    Move(
        "twice the tensor-parallel degree", "degree", (("parallel.tp", Times(2)), *HALF_DP), Price.TRAFFIC, MEGATRON,
        (MANY, (FRAMEWORK, TENSOR), ("parallel.tp", AtLeast(1, HALF_MACHINE))),
        needs="fast links between the ranks of a group: those of one machine",
    ),
    Move(
        "twice the context-parallel degree", "degree", (("parallel.cp", Times(2)), *HALF_DP), Price.TRAFFIC, RING,
        (MANY, (FRAMEWORK, ("torchtitan", *MEGATRONS))),
    ),
    Move(
        "twice the pipeline stages", "degree", (("parallel.pp", Times(2)), *HALF_DP), Price.TRAFFIC, MEGATRON,
        (MANY, (FRAMEWORK, ("torchtitan", *MEGATRONS))), needs="enough micro-batches to fill the longer pipeline",
    ),
    Move(
        "twice the expert-parallel degree", "degree", (("parallel.ep", Times(2)),), Price.TRAFFIC, EXPERTS,
        (MANY, (FRAMEWORK, ("torchtitan", *MEGATRONS))),
    ),
    Move(
        "1F1B in place of GPipe", "schedule", (("parallel.schedule", "1f1b"),), Price.FREE, MEGATRON,
        (("parallel.schedule", ("gpipe",)),),
    ),
    Move(
        "one model chunk a stage", "schedule", (("parallel.vpp", 1), ("parallel.schedule", "1f1b")), Price.TRAFFIC,
        MEGATRON, (("parallel.schedule", ("interleaved",)),), needs="a longer bubble at each step's ends",
    ),
    Move(
        "twice the devices", "devices",
        (("parallel.dp", Times(2)), ("parallel.world", Times(2)), ("parallel.shard", OUT)), Price.DEVICES, ZERO,
        ((STRATEGY, (*SHARDED, "megatron-distopt", "megatron-fsdp")),),
    ),
)  # fmt: skip

OFFLOADS = (
    Move(
        "optimizer on the host", "offload",
        (("offload.optimizer", "cpu"), ("optimizer.implementation", OUT)), Price.HOST, OFFLOAD,
        (("offload.optimizer", (None,)), (STRATEGY, ("zero1", "zero2", "zero3"))),
    ),
    Move(
        "optimizer and weights on the host", "offload",
        (("offload.optimizer", "cpu"), ("offload.params", "cpu"), ("optimizer.implementation", OUT)),
        Price.HOST, INFINITY, (("offload.params", (None,)), (STRATEGY, ("zero3", "fsdp1", "fsdp2", "hsdp"))),
    ),
    Move(
        "saved activations on the host", "activations", (("offload.activations", "cpu"),), Price.HOST, TUNE,
        (("offload.activations", (None,)), (FRAMEWORK, ("torchtune", *TRAINER)), ("stack.recompute.kind", ("full",))),
    ),
    Move(
        "MLPs in tiles of the sequence", "tiles", (("parallel.options.tiled_mlp", True),), Price.RECOMPUTE, TILES,
        (("parallel.options.tiled_mlp", (None, False)), (FRAMEWORK, ("deepspeed",)), ("batch.sequence", AtLeast(LONG))),
        needs="DeepSpeed's TiledMLP in place of the model's own",
    ),
)  # fmt: skip

MOVES: tuple[Move, ...] = (*MEMORY_MOVES, *SHARDING, *BUCKETS, *DEGREES, *OFFLOADS, *EVALUATION)
