"""What each part of a LitGPT configuration says of a plan: model, devices, precision, adapter, optimizer, batch."""

from __future__ import annotations

from typing import Any

from trainledger.base.problems import InputError, nearest
from trainledger.facts.import_litgpt import (
    APART,
    CAPPED,
    FUSED,
    MODELS,
    OPTIMIZERS,
    PRECISION,
    PRECISIONS,
    QUANTISED_OPTIMIZER,
    QUANTIZERS,
    SETUP,
    TORCH,
    TRAIN,
    TUNE,
    Settings,
)
from trainledger.facts.litgpt import SWITCHES
from trainledger.importers.keyed import Keyed
from trainledger.importers.overlay import fill, shown
from trainledger.importers.piece import Piece

SWITCH = "lora_"


def _number(keys: Keyed, piece: Piece, name: str, default: int) -> int:
    """A whole number above zero; the default where it is left out or is none (which is a problem)."""
    value = keys.raw(name)
    if value is None:
        return default
    if isinstance(value, str) and value.isdecimal():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return value
    fix = f"Write how many: {name}: 1." if name in ("devices", "num_nodes") else ""
    piece.refuse(name, shown(value), "a number of 1 or more", fix, keys.where(name))
    return default


def model(keys: Keyed, piece: Piece) -> None:
    """The model that the checkpoint's folder, or `model_name`, names."""
    names = ("checkpoint_dir", "model_name", "initial_checkpoint_dir")
    name = next((one for one in names if keys.raw(one) is not None), "")
    where = keys.where(name)
    value = keys.raw(name) if name else None
    if keys.raw("model_config") is not None:
        piece.refuse("model_config", "a shape of its own", "models by name are read", where=keys.where("model_config"))
    elif not isinstance(value, str) or not value.strip("/ "):
        piece.refuse(name or names[0], "missing" if value is None else shown(value), "the model's name is needed")
    else:
        path = [part for part in value.strip().split("/") if part]
        _named(piece, path, name, where)
        tied = keys.raw("train.tie_embeddings")
        if tied is True:
            piece.give("model.tie_word_embeddings", True, keys.where("train.tie_embeddings"))
        fill(piece, (APART,), "")


def _named(piece: Piece, path: list[str], name: str, where: str) -> None:
    from trainledger.facts.catalogue import find_model

    last = path[-1].lower()
    row = MODELS.get(last)
    if row is not None and row.keys:
        for key, value in row.keys.items():
            piece.give(f"model.{key}", value, where)
        piece.give("model.name", last, where)
        return
    wanted = row.value if row is not None else "/".join(path[-len(("organisation", "name")) :])
    try:
        found = find_model(wanted)
    except InputError:
        near = nearest(last, MODELS)
        fix = f"The nearest is {near}." if near else ""
        piece.refuse(name, shown("/".join(path)), "no model of this name is known", fix, where)
        return
    piece.give("model.name", found.name, where)
    if found.keys()["model_type"] in CAPPED:
        fill(piece, (CAPPED[str(found.keys()["model_type"])],), "")


def devices(keys: Keyed, piece: Piece, auto: bool) -> int:
    """All devices: of a node, times nodes. `auto`: the script takes all that there are where the key is left out."""
    if auto and keys.raw("devices") is None:
        fix = "Write how many: devices: 8, or --devices 8."
        piece.refuse("devices", "missing", "litgpt pretrain takes every device that it finds", fix)
    found = _number(keys, piece, "devices", 1) * _number(keys, piece, "num_nodes", 1)
    said = next((name for name in ("devices", "num_nodes") if keys.raw(name) is not None), "")
    if said:
        piece.give("parallel.world", found, keys.where(said))
    elif not auto:
        piece.fill("parallel.world", found, "litgpt: devices 1", SETUP)
    nodes = keys.raw("num_nodes")
    if auto and isinstance(nodes, int) and nodes > 1:
        piece.give("parallel.strategy", "hsdp", keys.where("num_nodes"))
        piece.give("parallel.shard", found // nodes, keys.where("devices"))
    return found


def precision(keys: Keyed, piece: Piece, spread: bool) -> None:
    """What Fabric's precision means for weights, products, gradients and what is reduced."""
    value = keys.raw("precision")
    row = PRECISIONS.get(f"{value}") if value is not None else PRECISIONS[PRECISION.name]
    where = keys.where("precision")
    if row is None:
        piece.refuse("precision", shown(value), f"one of {', '.join(PRECISIONS)}", where=where)
        return
    mixed = "compute" in row.keys
    compute = row.keys.get("compute", row.value)
    values: dict[str, Any] = {
        "weights": row.value,
        "compute": compute,
        "gradients": row.value,
        "autocast": mixed,
        "reduce": compute if spread else None,
        "master": None,
    }
    if row.keys.get("grad_scaler"):
        values["grad_scaler"] = True
    for path, meant in values.items():
        if value is None:
            piece.fill(f"precision.{path}", meant, f"litgpt: {row.name}", PRECISION.source)
        else:
            piece.give(f"precision.{path}", meant, where)


def adapter(keys: Keyed, piece: Piece) -> None:
    """LoRA, its switches, and the base that is quantised."""
    first = next((key for key in keys.data() if str(key).startswith(SWITCH)), "")
    piece.give("adapter.kind", "lora", keys.where(str(first)) if first else piece.name)
    for name, path, default in (("lora_r", "r", TUNE.rank), ("lora_dropout", "dropout", TUNE.dropout)):
        if (value := keys.raw(name)) is not None:
            piece.give(f"adapter.{path}", value, keys.where(name))
        else:
            piece.fill(f"adapter.{path}", default, f"litgpt: {name}", TUNE.source)
    names = [f"{SWITCH}{one.name}" for one in SWITCHES]
    on = [name for name in names if keys.raw(name, default=name.removeprefix(SWITCH) in TUNE.targets) is True]
    said = next((name for name in names if keys.has(name)), "")
    if said:
        piece.give("adapter.targets", on, keys.where(said))
    else:
        piece.fill("adapter.targets", on, "litgpt: lora_query and lora_value", TUNE.source)
    weights = piece.given.get("precision.weights") or piece.filled.get("precision.weights")
    if weights is not None:
        piece.fill("adapter.dtype", weights.value, "litgpt: as the other weights", SETUP)
    value = keys.raw("quantize")
    if value is None:
        return
    row = QUANTIZERS.get(f"{value}") or QUANTIZERS.get(f"bnb.{value}")
    if row is None:
        piece.refuse("quantize", shown(value), f"one of {', '.join(QUANTIZERS)}", where=keys.where("quantize"))
        return
    piece.give("quantization.kind", row.value, keys.where("quantize"))
    piece.give("quantization.double", row.keys.get("double", False), keys.where("quantize"))


def optimizer(keys: Keyed, piece: Piece, pretrain: bool) -> None:
    """The optimizer: bitsandbytes' paged AdamW on a quantised base, the fused one in pre-training."""
    value = keys.raw("optimizer")
    name = "optimizer.class_path" if isinstance(value, dict) else "optimizer"
    word = value.get("class_path") if isinstance(value, dict) else value
    where = keys.where(name) if word is not None else ""
    row = OPTIMIZERS.get(f"{word}" if word is not None else QUANTISED_OPTIMIZER.name)
    if row is None:
        near = nearest(f"{word}", OPTIMIZERS)
        fix = f"Did you mean {near}?" if near else ""
        piece.refuse(name, shown(word), f"{len(OPTIMIZERS)} of them are read, such as AdamW", fix, where)
        return
    plain = f"{row.value}-momentum" if keys.raw("optimizer.init_args.momentum") and row.value == "sgd" else row.value
    if "quantization.kind" in piece.given and row.value == "adamw":
        piece.give("optimizer.name", QUANTISED_OPTIMIZER.value, keys.where("quantize"))
        return
    fused = pretrain or keys.raw("optimizer.init_args.fused") is True
    kind = "fused" if fused and row.value in FUSED else "foreach"
    values = {"name": plain, **({"implementation": kind} if row.name.rpartition(".")[0] in TORCH else {})}
    for path, meant in values.items():
        if where:
            piece.give(f"optimizer.{path}", meant, where)
        else:
            piece.fill(f"optimizer.{path}", meant, "litgpt: optimizer AdamW", row.source)


def batch(keys: Keyed, piece: Piece, world: int, pretrain: bool) -> None:
    """The micro-batch, the micro-batches of a step, the longest sample, clipping (which pre-training alone does)."""
    settings: Settings = TRAIN if pretrain else TUNE
    micro = _number(keys, piece, "train.micro_batch_size", settings.micro_batch)
    whole = _number(keys, piece, "train.global_batch_size", settings.global_batch)
    for name, path, value in (
        ("train.micro_batch_size", "batch.micro_batch", micro),
        ("train.global_batch_size", "batch.accumulation", max(whole // world // micro, 1)),
    ):
        if keys.raw(name) is None:
            piece.fill(path, value, f"litgpt: {name}", settings.source)
        else:
            piece.give(path, value, keys.where(name))
    if whole // world < micro:
        found = f"{whole} for {world} devices of {micro} samples each"
        where = keys.where("train.global_batch_size")
        piece.refuse("train.global_batch_size", found, "LitGPT needs one micro-batch for each device", where=where)
    length = keys.raw("train.max_seq_length")
    if length is not None:
        piece.give("batch.sequence", length, keys.where("train.max_seq_length"))
    norm = keys.raw("train.max_norm")
    if norm is not None and pretrain:
        piece.give("optimizer.grad_clip", norm, keys.where("train.max_norm"))
