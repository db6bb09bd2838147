"""What each part of a torchtune configuration says of a plan: model, optimizer, batch, loss, memory, mesh."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainledger.base.problems import nearest
from trainledger.facts.import_torchtune import (
    ADAPTER_ONLY,
    ARGUMENTS,
    ASYNC,
    BUILDERS,
    DEGREES,
    DTYPES,
    FOREACH,
    LENGTHS,
    LORA_FILLED,
    LORA_KEYS,
    LOSSES,
    MLP_TARGETS,
    NEEDED,
    OPTIMIZERS,
    OUTPUT_TARGET,
    SHAPED,
    TARGETS,
    TASKS,
    TIED,
    WORLD,
)
from trainledger.facts.import_words import WordRow
from trainledger.importers.keyed import Keyed
from trainledger.importers.overlay import fill, ordinal, shown
from trainledger.importers.piece import Piece

PARTS = ("model", "policy_model")
LORA, QLORA = "lora_", "qlora_"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _row(keys: Keyed, piece: Piece, name: str, rows: dict[str, WordRow]) -> WordRow | None:
    """The row of a key's word; None, and a problem, where the table has none."""
    value = keys.raw(name)
    row = rows.get(_text(value))
    if row is None:
        near = nearest(_text(value), rows)
        fix = f"Did you mean {near}?" if near else ""
        text = "nothing" if value is None else shown(value)
        piece.refuse(name, text, f"{len(rows)} of them are read, such as {next(iter(rows))}", fix, keys.where(name))
    return row


def model(keys: Keyed, piece: Piece) -> None:
    """The model that the builder makes, and its adapter."""
    part = next((one for one in PARTS if keys.has(one)), PARTS[0])
    name = f"{part}._component_"
    builder = _text(keys.raw(name)).rpartition(".")[2]
    plain = builder.removeprefix("q").removeprefix(LORA) if builder.startswith((LORA, QLORA)) else builder
    if not builder:
        piece.refuse(name, "missing", "the model's builder is needed", "Such as torchtune.models.llama3_1.llama3_1_8b.")
    elif row := BUILDERS.get(plain):
        piece.give("model", row.value, keys.where(name))
        if not builder.startswith((LORA, QLORA)):
            _unread(keys, piece, part, ())
    elif shape := SHAPED.get(plain):
        _shape(keys, piece, part, shape)
    else:
        near = nearest(plain, (*BUILDERS, *SHAPED))
        piece.refuse(
            name,
            builder,
            "no language model of this name is known",
            f"The nearest is {near}." if near else "",
            keys.where(name),
        )
    if builder.startswith((LORA, QLORA)):
        _adapter(keys, piece, part, builder)
        _unread(keys, piece, part, (*LORA_KEYS, *(ARGUMENTS if plain in SHAPED else ())))


def _unread(keys: Keyed, piece: Piece, part: str, known: tuple[str, ...]) -> None:
    from trainledger.importers.draft import Unknown

    given = keys.raw(part)
    for one in given if isinstance(given, dict) else ():
        if one not in (*known, "_component_"):
            full = f"{part}.{one}"
            near = nearest(str(one), known)
            piece.unknown.append(Unknown(full, keys.where(full), f"{part}.{near}" if near else ""))


def _shape(keys: Keyed, piece: Piece, part: str, row: WordRow) -> None:
    """A model whose shape stands in the configuration."""
    piece.give("model.model_type", row.value, keys.where(f"{part}._component_"))
    for argument, known in ARGUMENTS.items():
        value = keys.raw(f"{part}.{argument}")
        if value is not None:
            piece.give(f"model.{known.value}", value, keys.where(f"{part}.{argument}"))
        elif argument in NEEDED:
            where = keys.where(part)
            piece.refuse(
                f"{part}.{argument}", "missing", "a builder that takes the model's shape needs it", where=where
            )
    builder = _text(keys.raw(f"{part}._component_")).rpartition(".")[2].removeprefix("q").removeprefix(LORA)
    tied = keys.raw(f"{part}.tie_word_embeddings", default=builder in TIED)
    piece.give("model.tie_word_embeddings", bool(tied), keys.where(f"{part}._component_"))
    piece.give("model.name", builder, keys.where(f"{part}._component_"))


def _adapter(keys: Keyed, piece: Piece, part: str, builder: str) -> None:
    where = keys.where(f"{part}._component_")
    dora = keys.raw(f"{part}.use_dora")
    piece.give("adapter.kind", "dora" if dora is True else "lora", keys.where(f"{part}.use_dora") if dora else where)
    for name, path in (("lora_rank", "adapter.r"), ("lora_dropout", "adapter.dropout")):
        if (value := keys.raw(f"{part}.{name}")) is not None:
            piece.give(path, value, keys.where(f"{part}.{name}"))
    fill(piece, LORA_FILLED, "")
    piece.give("adapter.targets", list(_targets(keys, piece, part)), keys.where(f"{part}.lora_attn_modules"))
    quantize = keys.raw(f"{part}.quantize_base", default=builder.startswith(QLORA))
    if quantize is True:
        named = f"{part}.quantize_base"
        piece.give("quantization.kind", "nf4", keys.where(named) if keys.has(named) else where)
        piece.give("quantization.double", True, where)


def _targets(keys: Keyed, piece: Piece, part: str) -> Iterator[str]:
    name = f"{part}.lora_attn_modules"
    modules = keys.raw(name, default=[])
    for module in modules if isinstance(modules, list) else [modules]:
        row = TARGETS.get(_text(module))
        if row is None:
            piece.refuse(name, shown(module), f"one of {', '.join(TARGETS)}", where=keys.where(name))
        else:
            yield row.value
    if keys.raw(f"{part}.apply_lora_to_mlp") is True:
        yield from MLP_TARGETS
    if keys.raw(f"{part}.apply_lora_to_output") is True:
        yield OUTPUT_TARGET


def optimizer(keys: Keyed, piece: Piece) -> None:
    """The optimizer, and how PyTorch's own runs its step."""
    row = _row(keys, piece, "optimizer._component_", OPTIMIZERS)
    if row is None:
        return
    where = keys.where("optimizer._component_")
    momentum = keys.raw("optimizer.momentum")
    name = f"{row.value}-momentum" if row.value == "sgd" and momentum else row.value
    piece.give("optimizer.name", name, where)
    if row.name.startswith("torch."):
        fused, foreach = keys.raw("optimizer.fused"), keys.raw("optimizer.foreach")
        if fused is True or foreach is not None:
            kind = "fused" if fused is True else "loop" if foreach is False else "foreach"
            piece.give(
                "optimizer.implementation", kind, keys.where("optimizer.fused" if fused else "optimizer.foreach")
            )
        fill(piece, (FOREACH,), "")


def batch(keys: Keyed, piece: Piece) -> None:
    """The longest sequence that the tokenizer lets through, and packing."""
    for name in LENGTHS:
        if (length := keys.raw(name)) is not None:
            piece.give("batch.sequence", length, keys.where(name))
            break
    if keys.raw("dataset.packed") is True:
        piece.give("stack.attention", "flex", keys.where("dataset.packed"))


def loss(keys: Keyed, piece: Piece) -> None:
    """The loss, and the task that goes with it."""
    name = "loss._component_"
    if not keys.has("loss"):
        return
    if task := TASKS.get(_text(keys.raw(name))):
        piece.give("task", task.value, keys.where(name))
    elif row := _row(keys, piece, name, LOSSES):
        piece.give("stack.loss", row.value, keys.where(name))
    if keys.has("kd_loss"):
        piece.give("task", "distill", keys.where("kd_loss"))


def memory(keys: Keyed, piece: Piece) -> None:
    """Recompute, offloaded activations, compilation."""
    on, mode, option = (keys.raw(name) for name in ("enable_activation_checkpointing", "ac_mode", "ac_option"))
    if mode == "selective":
        policy = "op" if option == "op" else f"every {ordinal(option)} layer"
        piece.give("stack.recompute", {"kind": "selective", "policy": policy}, keys.where("ac_mode"))
    elif on is True or mode == "full":
        name = "enable_activation_checkpointing" if on is True else "ac_mode"
        piece.give("stack.recompute", {"kind": "full", "reentrant": False}, keys.where(name))
    if keys.raw("enable_activation_offloading") is True:
        piece.give("offload.activations", "cpu", keys.where("enable_activation_offloading"))
    compiled = keys.raw("compile")
    if compiled is not None:
        value = compiled.get("model", True) if isinstance(compiled, dict) else compiled
        piece.give("stack.compile", value, keys.where("compile"))


def precision(keys: Keyed, piece: Piece, spread: bool) -> None:
    """One dtype for weights, products, gradients and what is reduced; fp8 products where they are asked for."""
    row = DTYPES["bf16"]
    if keys.has("dtype"):
        found = _row(keys, piece, "dtype", DTYPES)
        if found is None:
            return
        row = found
    said = dict.fromkeys(("weights", "compute", "gradients"), row.value)
    adapter = {"adapter.dtype": row.value} if "adapter.kind" in piece.given else {}
    values: dict[str, Any] = {f"precision.{path}": value for path, value in said.items()} | adapter
    values |= {"precision.autocast": False, "precision.master": None}
    values["precision.reduce"] = row.value if spread else None
    for path, value in values.items():
        if keys.has("dtype"):
            piece.give(path, value, keys.where("dtype"))
        else:
            piece.fill(path, value, "torchtune's presets: dtype bf16", row.source)
    if keys.raw("enable_fp8_training") is True:
        piece.give("precision.compute", "fp8", keys.where("enable_fp8_training"))
        recipe = keys.raw("fp8_recipe_name", default="tensorwise")
        piece.give("precision.fp8.recipe", recipe, keys.where("fp8_recipe_name"))


def parallel(keys: Keyed, piece: Piece, world: tuple[int, str] | None) -> None:
    """The mesh, and what is kept on the host."""
    if world:
        piece.give("parallel.world", *world)
    else:
        _fewest(keys, piece)
    for name, axis in DEGREES:
        if (degree := keys.raw(name)) is not None:
            piece.give(f"parallel.{axis}", degree, keys.where(name))
    if isinstance(tp := keys.raw("tensor_parallel_dim"), int) and tp > 1:
        piece.give("parallel.sp", True, keys.where("tensor_parallel_dim"))
    replicas = keys.raw("data_parallel_replicate_dim")
    if isinstance(replicas, int) and replicas > 1:
        piece.give("parallel.strategy", "hsdp", keys.where("data_parallel_replicate_dim"))
    shard = keys.raw("data_parallel_shard_dim")
    if isinstance(shard, int) and shard > 0:
        piece.give("parallel.shard", shard, keys.where("data_parallel_shard_dim"))
    if (reshard := keys.raw("fsdp_reshard_after_forward")) is not None:
        piece.give("parallel.reshard_after_forward", reshard, keys.where("fsdp_reshard_after_forward"))
    if (sharding := keys.raw("fsdp_sharding_strategy")) is not None:
        piece.give("parallel.reshard_after_forward", sharding == "FULL_SHARD", keys.where("fsdp_sharding_strategy"))
    if keys.raw("fsdp_cpu_offload") is True:
        for path in ("params", "optimizer"):
            piece.give(f"offload.{path}", "cpu", keys.where("fsdp_cpu_offload"))


def saves(keys: Keyed, piece: Piece) -> None:
    """What a checkpoint leaves out, and whether training goes on meanwhile."""
    if keys.raw(ADAPTER_ONLY) is True and "adapter.kind" in piece.given:
        piece.give("save.format", "adapter", keys.where(ADAPTER_ONLY))
    if keys.raw(ASYNC) is True and "adapter.kind" not in piece.given:
        piece.give("save.asynchronous", True, keys.where(ASYNC))


def _fewest(keys: Keyed, piece: Piece) -> None:
    """How many ranks there are where no command says so: as many as the degrees need."""
    names = ("tensor_parallel_dim", "context_parallel_dim", "data_parallel_replicate_dim", "data_parallel_shard_dim")
    found = 1
    for name in names:
        value = keys.raw(name)
        found *= value if isinstance(value, int) and value > 0 else 1
    why = "the fewest that the degrees need: give the line that starts it, or --set parallel.world=8"
    piece.fill("parallel.world", found, why, WORLD)
