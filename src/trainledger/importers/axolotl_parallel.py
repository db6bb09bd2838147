"""Axolotl: FSDP with and without the prefix of its keys, and the degrees."""

from __future__ import annotations

from trainledger.facts.import_axolotl import AXOLOTL_FILLED, DEGREES
from trainledger.facts.option_row import Direction
from trainledger.importers.front_end import FrontEnd
from trainledger.importers.piece import Given

PREFIX = "fsdp_"
KEYS = (
    "version", "activation_checkpointing", "offload_params", "sync_module_states", "cpu_ram_efficient_loading",
    "cpu_offload_pin_memory", "use_orig_params", "state_dict_type", "final_state_dict_type", "auto_wrap_policy",
    "transformer_layer_cls_to_wrap", "min_num_params", "reshard_after_forward", "mixed_precision_policy",
    "sharding_strategy", "backward_prefetch", "forward_prefetch", "limit_all_gathers", "auto_wrap",
)  # fmt: skip
FULL = "full_shard auto_wrap"


def fsdp(front: FrontEnd) -> None:
    """FSDP: `fsdp: [full_shard, auto_wrap]` and `fsdp_config`, whose keys may have a prefix; or `fsdp_config` alone."""
    own = front.own
    if not own.raw("fsdp") and not own.raw("fsdp_config"):
        return
    if own.raw("deepspeed"):
        front.refuse("deepspeed", "FSDP and DeepSpeed exclude each other", "Leave one out.")
    inner = own.below("fsdp_config")
    keys: dict[str, object] = {}
    for name, given in inner.given.items():
        bare = name.removeprefix(PREFIX)
        if bare not in KEYS:
            from trainledger.base.problems import nearest
            from trainledger.importers.draft import Unknown

            front.piece.unknown.append(Unknown(f"fsdp_config.{name}", given.where, nearest(bare, KEYS)))
        elif bare == "mixed_precision_policy":
            front.uncounted(f"fsdp_config.{name}", given.where, Direction.EITHER)
        else:
            keys[bare] = given.value
    version = own.whole("fsdp_version", least=1)
    if version is not None:
        keys["version"] = version
    elif "version" not in keys:
        keys["version"] = next(row.value for row in AXOLOTL_FILLED if row.path == "fsdp_version")
    raw = own.raw("fsdp")
    words = [str(one) for one in raw] if isinstance(raw, list) else str(raw or "").split()
    front.hand("fsdp", " ".join(words) if words and raw is not True else FULL, "fsdp", "fsdp_config")
    front.hand("fsdp_config", keys, "fsdp_config", "fsdp")


def degrees(front: FrontEnd, world: Given | None) -> None:
    """Tensor and context parallelism, and over how many ranks FSDP shards and replicates."""
    own, piece = front.own, front.piece
    for path, names in DEGREES:
        size = own.whole(*names, least=1)
        if size is not None and size > 1:
            piece.give(path, size, own.where(*names))
    shard = own.whole("dp_shard_size", least=1)
    replicas = own.whole("dp_replicate_size", least=1) or 1
    if world is not None:
        piece.give("parallel.world", world.value, world.where)
    if not own.has("fsdp", "fsdp_config"):
        return
    if replicas > 1:
        piece.facts["fsdp.strategy"] = Given("HYBRID_SHARD", own.where("dp_replicate_size"))
    if shard is not None:
        sizes = {path: int(piece.given[path].value) if path in piece.given else 1 for path, _ in DEGREES}
        where = own.where("dp_shard_size")
        piece.give("parallel.shard", shard * sizes["parallel.cp"], where)
        piece.give("parallel.dp", shard * replicas, where)
        if world is None:
            piece.give("parallel.world", shard * replicas * sizes["parallel.tp"] * sizes["parallel.cp"], where)
