"""What room to spare can buy: changes that hold more and run faster, or round less."""

from __future__ import annotations

from trainledger.facts.move_row import OUT, AtLeast, Move, Price, Set, Times
from trainledger.facts.moves import FSDP, OFFLOAD, ZERO
from trainledger.facts.moves_memory import BNB, CHECKPOINT, GPIPE, OTHERS

KIND = "stack.recompute.kind"
SHARDED = ("zero1", "zero2", "zero3", "fsdp1", "fsdp2", "hsdp", "megatron-distopt", "megatron-fsdp")

# Of these moves `numerics` says what is gained; each is worth taking by itself, the first that fits first.
SPARES: tuple[Move, ...] = (
    Move(
        "no recompute", "recompute", (("stack.recompute", {"kind": "none"}),), Price.FREE, CHECKPOINT,
        ((KIND, ("full", "selective")),), numerics="the forward runs once",
    ),
    Move(
        "recompute of every second layer only", "recompute",
        (("stack.recompute", {"kind": "selective", "policy": "every 2nd layer"}),), Price.FREE, CHECKPOINT,
        ((KIND, ("full",)), ("stack.framework", OTHERS)), numerics="half of the forward runs once",
    ),
    Move(
        "weights and optimizer on the device", "offload",
        (("offload.params", None), ("offload.optimizer", None), ("optimizer.implementation", OUT)), Price.FREE, OFFLOAD,
        (("offload.params", Set()),), numerics="no traffic over the host's link, a faster update",
    ),
    Move(
        "optimizer on the device", "offload", (("offload.optimizer", None), ("optimizer.implementation", OUT)),
        Price.FREE, OFFLOAD, (("offload.optimizer", Set()), ("offload.params", Set(False))),
        numerics="no traffic over the host's link, a faster update",
    ),
    Move(
        "ZeRO-2 in place of ZeRO-3", "sharding", (("parallel.strategy", "zero2"), ("offload.params", None)), Price.FREE,
        ZERO, (("parallel.strategy", ("zero3",)),), numerics="a third less traffic: weights are not gathered",
    ),
    Move(
        "weights kept after their forward", "reshard", (("parallel.reshard_after_forward", False),), Price.FREE, FSDP,
        (("parallel.reshard_after_forward", (True,)), ("parallel.strategy", ("fsdp1", "fsdp2"))),
        numerics="weights are gathered once in a step, not twice",
    ),
    Move(
        "twice the micro-batch, half the accumulation", "batch",
        (("batch.micro_batch", Times(2)), ("batch.accumulation", Times(1, 2))), Price.FREE, GPIPE,
        (("batch.accumulation", AtLeast(2)),), numerics="larger products, the same global batch",
    ),
    Move(
        "optimizer states in full width", "states", (("optimizer.name", "adamw"), ("optimizer.implementation", OUT)),
        Price.FREE, BNB, (("optimizer.name", ("adamw-8bit", "paged-adamw-8bit", "adam-8bit")),),
        numerics="states are not rounded to 8 bits",
    ),
    Move(
        "half the tensor-parallel degree", "degree",
        (("parallel.tp", Times(1, 2)), ("parallel.dp", Times(2)), ("parallel.world", Times()), ("parallel.shard", OUT),
         ("batch.accumulation", Times(1, 2))),
        Price.FREE, ZERO, (("parallel.tp", AtLeast(2)), ("batch.accumulation", AtLeast(2))),
        numerics="less traffic within a layer, the same global batch",
    ),
    Move(
        "half the devices", "devices",
        (("parallel.dp", Times(1, 2)), ("parallel.world", Times(1, 2)), ("parallel.shard", OUT),
         ("batch.accumulation", Times(2))),
        Price.FREE, ZERO, (("parallel.dp", AtLeast(2)), ("parallel.strategy", SHARDED)),
        numerics="half the devices for twice the time, the same global batch",
    ),
)  # fmt: skip
