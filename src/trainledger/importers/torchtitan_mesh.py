"""torchtitan's mesh as a plan says it: degrees, ranks, the strategy that shards, the pipeline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trainledger.facts.import_torchtitan import AXES, PLACES
from trainledger.facts.import_torchtitan_words import DEFAULTS, MESH, SCHEDULES
from trainledger.importers.keyed import Keyed
from trainledger.importers.overlay import shown
from trainledger.importers.piece import Piece
from trainledger.plan.own_stages import LESS_FIRST, LESS_LAST, PARTS, POINTS


@dataclass(frozen=True, slots=True)
class Sizes:
    """Degrees; `shard` 0: what is left of the world."""

    replicate: int = 1
    shard: int = 0
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1

    @property
    def inner(self) -> int:
        """Ranks that see one part of the batch."""
        return self.tensor * self.pipeline * self.context


def named(keys: Keyed, key: str) -> tuple[Any, str]:
    """The value of a key of the mesh in whichever section it stands, and the key's full name; null where it is none."""
    for place in PLACES:
        name = f"{place}.{key}"
        if (value := keys.raw(name)) is not None:
            return value, name
    return None, f"{PLACES[0]}.{key}"


def count(keys: Keyed, piece: Piece, name: str, value: Any, default: int) -> int:
    """A whole number above zero; the default where it is left out, not positive, or no number (which is a problem)."""
    if value is None:
        return default
    if isinstance(value, int) and not isinstance(value, bool):
        return value if value > 0 else default
    piece.refuse(name, shown(value), "a whole number is needed", where=keys.where(name))
    return default


def positive(keys: Keyed, piece: Piece, name: str, value: Any, default: int) -> int:
    """A whole number of at least 1; the default where it is left out, or is less (which is a problem)."""
    if isinstance(value, int) and not isinstance(value, bool) and value < 1:
        piece.refuse(name, shown(value), "a whole number of at least 1 is needed", where=keys.where(name))
        return default
    return count(keys, piece, name, value, default)


def degrees(keys: Keyed, piece: Piece) -> Sizes:
    """The degrees that were given, each said in the plan where it has a key of its own."""
    found: dict[str, int] = {}
    for key, path in AXES:
        value, name = named(keys, f"{key}_parallel_degree")
        found[key] = positive(keys, piece, name, value, 1)
        if found[key] > 1:
            piece.give(f"parallel.{path}", found[key], keys.where(name))
    value, name = _shard(keys)
    shard = count(keys, piece, name, value, 0)
    value, name = named(keys, "data_parallel_replicate_degree")
    replicate = positive(keys, piece, name, value, 1)
    value, name = named(keys, "expert_tensor_parallel_degree")
    if value is not None and found["expert"] > 1:
        piece.give("parallel.etp", value, keys.where(name))
    return Sizes(replicate, shard, **found)


def _shard(keys: Keyed) -> tuple[Any, str]:
    """The degree over which weights are sharded, under its name of today or of 2024."""
    value, name = named(keys, "data_parallel_shard_degree")
    old = "training.data_parallel_degree"
    return (keys.raw(old), old) if value is None and keys.has(old) else (value, name)


def world(keys: Keyed, piece: Piece, sizes: Sizes, given: tuple[int, str] | None) -> int:
    """All ranks: as launched, or the product of all degrees, or run_train.sh's eight."""
    if given:
        piece.give("parallel.world", *given)
        return given[0]
    if sizes.shard:
        whole = sizes.replicate * sizes.shard * sizes.inner
        piece.give("parallel.world", whole, keys.where(_shard(keys)[1]))
        return whole
    inner = sizes.replicate * sizes.inner
    nodes = -(-inner // DEFAULTS.devices)
    piece.fill("parallel.world", nodes * DEFAULTS.devices, "torchtitan: run_train.sh, NGPU 8", DEFAULTS.source)
    return nodes * DEFAULTS.devices


def strategy(keys: Keyed, piece: Piece, sizes: Sizes, whole: int, known: bool) -> bool:
    """Whether weights are sharded (FSDP2, within replicas HSDP), or replicated (DDP), or neither; context-parallel
    ranks share the shards. `known`: how many ranks there are is said."""
    shard = sizes.shard or max(whole // (sizes.replicate * sizes.inner), 1)
    name = _shard(keys)[1]
    where = keys.where(name) if keys.has(name) else ""
    sharded = shard * sizes.context > 1 or (not known and not sizes.shard)
    word = ("hsdp" if sizes.replicate > 1 else "fsdp2") if sharded else "ddp" if sizes.replicate > 1 else "none"
    _say(piece, "parallel.strategy", word, where, "torchtitan shards over every rank that is left")
    if sharded and (sizes.replicate > 1 or sizes.context > 1):
        _say(piece, "parallel.shard", shard * sizes.context, where, "torchtitan shards over context ranks too")
    policy, name = named(keys, "fsdp_reshard_after_forward")
    if sharded and policy in (None, "default"):
        piece.fill(
            "parallel.reshard_after_forward",
            sizes.pipeline == 1,
            "torchtitan: fsdp_reshard_after_forward default (not with a pipeline)",
            MESH,
        )
    elif sharded and policy in ("always", "never"):
        piece.give("parallel.reshard_after_forward", policy == "always", keys.where(name))
        if policy == "always":
            piece.give("parallel.options.reshard_last_layer", True, keys.where(name))
    elif sharded:
        piece.refuse(name, shown(policy), "default, always or never", where=keys.where(name))
    _tensor(keys, piece, sizes)
    if sharded and keys.raw("training.enable_cpu_offload") is True:
        for path in ("params", "optimizer"):
            piece.give(f"offload.{path}", "cpu", keys.where("training.enable_cpu_offload"))
    return sharded


def _say(piece: Piece, path: str, value: object, where: str, why: str) -> None:
    if where:
        piece.give(path, value, where)
    else:
        piece.fill(path, value, why, MESH)


def _tensor(keys: Keyed, piece: Piece, sizes: Sizes) -> None:
    """What goes with tensor parallelism: sequence parallelism, a loss on sharded logits, asynchronous collectives."""
    if sizes.tensor == 1:
        return
    spread, name = named(keys, "enable_sequence_parallel")
    if spread is False:
        piece.give("parallel.sp", False, keys.where(name))
    else:
        piece.fill("parallel.sp", True, "torchtitan: norms are sharded along the sequence", MESH)
    if named(keys, "disable_loss_parallel")[0] is True:
        piece.give("stack.loss", "full-fp32", keys.where(named(keys, "disable_loss_parallel")[1]))
    else:
        piece.fill("stack.loss", "vocab-parallel", "torchtitan: the loss runs on sharded logits", MESH)
    name = "compile.enable_async_tensor_parallel"
    on = keys.raw(name)
    if on is None:
        on, name = named(keys, "enable_async_tensor_parallel")
    if on is True:
        piece.give("parallel.options.async_tp", True, keys.where(name))


def pipeline(keys: Keyed, piece: Piece, sizes: Sizes, layers: int) -> None:
    """The schedule, and the stages of a rank. `layers`: of the model, 0 where they are not known."""
    if sizes.pipeline == 1:
        return
    value, name = named(keys, "pipeline_parallel_schedule")
    row = SCHEDULES.get(f"{value}".lower()) if value is not None else SCHEDULES["1f1b"]
    if row is None:
        known = "1F1B, GPipe, Interleaved1F1B, ZBVZeroBubble, DualPipeV"
        piece.refuse(name, shown(value), f"schedules that are read: {known}", where=keys.where(name))
        return
    if value is None:
        piece.fill("parallel.schedule", row.value, "torchtitan: pipeline_parallel_schedule 1F1B", MESH)
    else:
        piece.give("parallel.schedule", row.value, keys.where(name))
    if not any((_named_stages(keys, piece, sizes), _counted_stages(keys, piece, sizes, layers))) and "vpp" in row.keys:
        piece.fill("parallel.vpp", row.keys["vpp"], "torchtitan: two stages on a rank", MESH)


def _named_stages(keys: Keyed, piece: Piece, sizes: Sizes) -> bool:
    """Stages whose layers are named: the first of each but the first, or every module of each."""
    for key, more in ((POINTS, 1), (PARTS, 0)):
        value, name = named(keys, key)
        listed = [one.strip() for one in value.split(",")] if isinstance(value, str) and key == POINTS else value
        if not isinstance(listed, list) or not listed:
            continue
        piece.give(f"parallel.options.{key}", listed, keys.where(name))
        _chunks(keys, piece, sizes, name, len(listed) + more)
        return True
    return False


def _counted_stages(keys: Keyed, piece: Piece, sizes: Sizes, layers: int) -> bool:
    """Stages of so many layers each, where embedding and head count as some."""
    value, name = named(keys, "pipeline_parallel_layers_per_stage")
    each = count(keys, piece, name, value, 0)
    if not each or not layers:
        return False
    ends = [keys.raw(f"{PLACES[0]}.{key}") for key in (LESS_FIRST, LESS_LAST)]
    whole = layers + sum(one if isinstance(one, int) else DEFAULTS.edges for one in ends)
    _chunks(keys, piece, sizes, name, -(-whole // each))
    return True


def _chunks(keys: Keyed, piece: Piece, sizes: Sizes, name: str, stages: int) -> None:
    """The stages of each rank; as many for all of them, or torchtitan refuses."""
    if stages % sizes.pipeline:
        found = f"{shown(keys.raw(name))}; {stages} stages over {sizes.pipeline} pipeline ranks"
        piece.refuse(name, found, "a multiple of the ranks is needed", where=keys.where(name))
        return
    piece.give("parallel.vpp", stages // sizes.pipeline, keys.where(name))
