"""What each part of torchtitan's settings says of a plan: model, batch, precision, optimizer, recompute, compiling."""

from __future__ import annotations

from typing import Any

from trainledger.base.problems import nearest
from trainledger.facts.import_torchtitan import FLOAT8, MX
from trainledger.facts.import_torchtitan_models import ATTENTIONS, MODELS
from trainledger.facts.import_torchtitan_words import (
    DEFAULTS,
    DTYPES,
    IMPLEMENTATIONS,
    OPTIMIZERS,
    RECOMPUTES,
    TENSORWISE,
    TRAIN,
)
from trainledger.facts.import_words import WordRow
from trainledger.facts.torchtitan import BUDGET, COMPONENTS
from trainledger.importers.keyed import Keyed
from trainledger.importers.overlay import fill, ordinal, shown
from trainledger.importers.piece import Piece
from trainledger.importers.torchtitan_mesh import Sizes, count, named, positive


def _word(keys: Keyed, piece: Piece, name: str, rows: dict[str, WordRow]) -> WordRow | None:
    """The row of a key's word; None, and a problem, where there is none."""
    value = keys.raw(name)
    row = rows.get(f"{value}")
    if row is None:
        piece.refuse(name, shown(value), f"one of {', '.join(rows)}", where=keys.where(name))
    return row


def model(keys: Keyed, piece: Piece) -> int:
    """The flavour's model, and how many layers it has (0 where that is not known)."""
    from trainledger.facts.catalogue import find_model

    flavour = keys.raw("model.flavor")
    family = f"{keys.raw('model.name', default='llama3')}".lower()
    where = keys.where("model.flavor")
    if not isinstance(flavour, str) or not flavour:
        piece.refuse(
            "model.flavor", "missing", "the model's flavour is needed", "Such as 8B, beside name = llama3.", where
        )
        return 0
    plain = flavour.lower()
    if kind := next((one for one in ATTENTIONS if plain.endswith(one)), ""):
        plain = plain.removesuffix(kind)
        piece.give("stack.attention", ATTENTIONS[kind].value, where)
    row = MODELS.get(f"{family}/{plain}")
    if row is None:
        near = nearest(f"{family}/{plain}", MODELS)
        fix = f"The nearest is {near}." if near else ""
        piece.refuse("model.flavor", shown(f"{family}, {flavour}"), "no flavour of this name is known", fix, where)
        return 0
    if row.keys:
        for key, value in row.keys.items():
            piece.give(f"model.{key}", value, where)
        piece.give("model.name", row.name.replace("/", "-"), where)
        return int(row.keys["num_hidden_layers"])
    piece.give("model", row.value, where)
    layers = find_model(row.value).keys().get("num_hidden_layers")
    return layers if isinstance(layers, int) else 0


def batch(keys: Keyed, piece: Piece, sizes: Sizes, whole: int) -> None:
    """The micro-batch of a rank, its sequence, and the micro-batches of a step: a pipeline's, or those accumulated."""
    size_name = next((one for one in ("training.local_batch_size", "training.batch_size") if keys.has(one)), "")
    local = positive(keys, piece, size_name, keys.raw(size_name) if size_name else None, DEFAULTS.micro_batch)
    length_name = "training.seq_len" if keys.has("training.seq_len") else "training.max_context_length"
    length = positive(keys, piece, length_name, keys.raw(length_name), DEFAULTS.sequence)
    tokens_name = "training.num_tokens_per_microbatch_per_dp_rank"
    tokens = count(keys, piece, tokens_name, keys.raw(tokens_name), 0)
    if tokens:
        local, size_name = max(tokens // length, 1), tokens_name
    data = max(whole // sizes.inner, 1)
    goal_name = "training.num_tokens_per_train_step" if tokens else "training.global_batch_size"
    goal = count(keys, piece, goal_name, keys.raw(goal_name), 0)
    steps = max(goal // (local * (length if tokens else 1) * data), 1) if goal else 1
    where = keys.where(goal_name) if goal else ""
    if sizes.pipeline > 1:
        local, steps, where = _pipelined(keys, piece, sizes, local)
    _say(piece, "batch.micro_batch", local, keys.where(size_name) if size_name else "")
    _say(piece, "batch.sequence", length, keys.where(length_name) if keys.has(length_name) else "")
    _say(piece, "batch.accumulation", steps, where)


def _pipelined(keys: Keyed, piece: Piece, sizes: Sizes, local: int) -> tuple[int, int, str]:
    """A rank's sequences as micro-batches of a pipeline: sequences of one, their number, and where that is said."""
    value, name = named(keys, "num_pp_microbatches")
    if value is not None:
        return local, count(keys, piece, name, value, 1), keys.where(name)
    value, name = named(keys, "pipeline_parallel_microbatches")
    old = value is not None or keys.has("experimental.pipeline_parallel_degree")
    if old:
        number = count(keys, piece, name, value, sizes.pipeline)
        return max(local // number, 1), number, keys.where(name) if value is not None else ""
    value, name = named(keys, "pipeline_parallel_microbatch_size")
    size = min(count(keys, piece, name, value, 1), local)
    return size, local // size, keys.where(name) if value is not None else ""


def _say(piece: Piece, path: str, value: object, where: str) -> None:
    if where:
        piece.give(path, value, where)
    else:
        piece.fill(path, value, "torchtitan's own, where its key is left out", DEFAULTS.source)


def precision(keys: Keyed, piece: Piece, sizes: Sizes, sharded: bool) -> None:
    """Shards in `dtype`, gathered and multiplied in `mixed_precision_param`; without shards autocast does that, and
    with a tensor-parallel or pipelined model nothing does."""
    found: dict[str, tuple[str, str]] = {}
    for key, default in (("dtype", "fp32"), ("mixed_precision_param", "bf16"), ("mixed_precision_reduce", "fp32")):
        name = f"training.{key}"
        row = _word(keys, piece, name, DTYPES) if keys.raw(name) is not None else None
        found[key] = (row.value, keys.where(name)) if row else (default, "")
    weights, place = found["dtype"]
    param, param_place = found["mixed_precision_param"]
    plain = not sharded and (sizes.tensor > 1 or sizes.pipeline > 1)
    auto = not sharded and not plain and param != weights
    many = sharded or sizes.replicate > 1
    values: tuple[tuple[str, Any, str], ...] = (
        ("weights", weights, place),
        ("gradients", weights, place),
        ("compute", weights if plain else param, param_place),
        ("autocast", auto, param_place),
        ("reduce", (found["mixed_precision_reduce"][0] if sharded else weights) if many else None, ""),
        ("master", None, place),
    )
    for path, value, where in values:
        if where:
            piece.give(f"precision.{path}", value, where)
        else:
            piece.fill(f"precision.{path}", value, "torchtitan: training.dtype and mixed precision", TRAIN)


def float8(keys: Keyed, piece: Piece) -> None:
    """8-bit products: by a converter's name, or by the switch of 2024."""
    given = keys.raw("model.converters", default=[])
    listed = given if isinstance(given, list) else f"{given}".split(",")
    names = [f"{one}".strip() for one in listed]
    where = keys.where("model.converters")
    switches = ("float8.enable_float8_linear", "training.enable_float8_linear", "training.fp8_linear")
    switch = next((one for one in switches if keys.raw(one) in (True, "dynamic")), "")
    if switch or any(name in FLOAT8 for name in names):
        where = keys.where(switch) if switch else where
        recipe = next((f"{one}.recipe_name" for one in FLOAT8 if keys.raw(f"{one}.recipe_name")), "")
        piece.give("precision.compute", "fp8", where)
        if recipe:
            piece.give("precision.fp8.recipe", keys.raw(recipe), keys.where(recipe))
        fill(piece, (TENSORWISE,), "")
        gather = next((f"{one}.enable_fsdp_float8_all_gather" for one in FLOAT8 if _gathers(keys, one)), "")
        if gather:
            piece.give("precision.fp8.all_gather", True, keys.where(gather))
        again = "float8.force_recompute_fp8_weight_in_bwd"
        if keys.raw(again) is True:
            piece.give("precision.fp8.force_recompute_weight_in_bwd", True, keys.where(again))
    elif any(name in MX for name in names):
        recipe = next((f"{one}.recipe_name" for one in MX if keys.raw(f"{one}.recipe_name")), "")
        piece.give("precision.compute", "mxfp8", where)
        if recipe:
            piece.give("precision.fp8.recipe", keys.raw(recipe), keys.where(recipe))


def _gathers(keys: Keyed, place: str) -> bool:
    return keys.raw(f"{place}.enable_fsdp_float8_all_gather") is True


def optimizer(keys: Keyed, piece: Piece) -> None:
    """The optimizer and how its step runs: `implementation`, or the switch `fused` of 2024."""
    if keys.raw("optimizer.name") is not None and (row := _word(keys, piece, "optimizer.name", OPTIMIZERS)):
        piece.give("optimizer.name", row.value, keys.where("optimizer.name"))
    if keys.raw("optimizer.implementation") is not None:
        if row := _word(keys, piece, "optimizer.implementation", IMPLEMENTATIONS):
            piece.give("optimizer.implementation", row.value, keys.where("optimizer.implementation"))
    elif (fused := keys.raw("optimizer.fused")) is not None:
        piece.give("optimizer.implementation", "fused" if fused is True else "foreach", keys.where("optimizer.fused"))


def recompute(keys: Keyed, piece: Piece) -> None:
    """Nothing, whole layers, every n-th layer, or by operation."""
    value = keys.raw("activation_checkpoint")
    name = "activation_checkpoint" if isinstance(value, str) else "activation_checkpoint.mode"
    if keys.raw(name) is None or isinstance(keys.raw(name), dict):
        return
    row = _word(keys, piece, name, RECOMPUTES)
    option_name = "activation_checkpoint.selective_ac_option"
    option = f"{keys.raw(option_name, default='2')}"
    where = keys.where(name)
    if row is None:
        return
    if row.value == "none":
        piece.give("stack.recompute", "none", where)
    elif row.value == "full" or option == "1":
        piece.give("stack.recompute", {"kind": "full", "reentrant": False}, where)
    elif row.value == "budget":
        share = keys.raw("activation_checkpoint.memory_budget", default=BUDGET.share)
        piece.give("stack.recompute", {"kind": "selective", "policy": f"{BUDGET.words} {share}"}, where)
    elif row.value == "op" or option == "op":
        piece.give("stack.recompute", {"kind": "selective", "policy": "op"}, where)
    elif option.isdecimal() and int(option):
        policy = f"every {ordinal(int(option))} layer"
        piece.give("stack.recompute", {"kind": "selective", "policy": policy}, where)
    else:
        piece.refuse(option_name, shown(option), "op, or a number of layers", where=keys.where(option_name))


def saves(keys: Keyed, piece: Piece) -> bool:
    """How many checkpoints are kept, and whether training goes on while one is written. Returns whether their number is
    left to torchtitan's own default."""
    if not any(keys.raw(name) is True for name in ("checkpoint.enable", "checkpoint.enable_checkpoint")):
        return False
    kept = keys.raw("checkpoint.keep_latest_k")
    if isinstance(kept, int) and kept > 0:
        piece.give("save.limit", kept, keys.where("checkpoint.keep_latest_k"))
    if f"{keys.raw('checkpoint.async_mode')}".startswith("async"):
        piece.give("save.asynchronous", True, keys.where("checkpoint.async_mode"))
    return kept is None


def compiled(keys: Keyed, piece: Piece) -> None:
    """Whether layers are compiled, and the components where they are not model and loss both."""
    on, name = keys.raw("compile.enable"), "compile.enable"
    if on is None:
        on, name = keys.raw("training.compile"), "training.compile"
    if on is None:
        return
    both, path = [COMPONENTS.model, COMPONENTS.loss], f"{COMPONENTS.section}.{COMPONENTS.key}"
    parts = keys.raw(path, default=both)
    listed = parts if isinstance(parts, list) else f"{parts}".strip("[]").replace('"', "").split(",")
    found = [f"{one}".strip(" '") for one in listed]
    piece.give("stack.compile", on if on is not True else COMPONENTS.model in found, keys.where(name))
    if on is True and sorted(found) != sorted(both):
        piece.give(f"stack.options.{path}", [one for one in found if one], keys.where(path))
