"""Megatron-Bridge's configuration as YAML, and NeMo 2's: their keys stand for Megatron's arguments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trainledger.base.problems import Problem
from trainledger.facts.import_bridge import (
    ACTIVATIONS,
    ADAPTERS,
    BRIDGE,
    DEVICES,
    FUSED_LOSS,
    KEPT,
    MOVED,
    NEAR,
    NEGATED,
    NODES,
    RECIPES,
    ROWS,
    SECTIONS,
    argument_of,
    row_of,
)
from trainledger.facts.import_rows import CERTAIN, LIKELY, KeyRow
from trainledger.facts.options import find_option
from trainledger.importers.command_ranks import Ranks
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import FlatKeyed
from trainledger.importers.megatron import give
from trainledger.importers.piece import Piece
from trainledger.importers.settings import Settings

FORMAT = "Megatron-Bridge or NeMo 2 configuration"
OWN = ("mixed_precision", "comm_overlap", "rerun_state_machine", "ddp", "dist", "scheduler", "tokenizer", "dataset")
MODEL = ("num_layers", "tensor_model_parallel_size", "hidden_size", "context_parallel_size", "seq_length")
HINT = "A recipe's Python has the rest: give the run_config.yaml that a run saves beside its checkpoints."
BATCH = {"--micro-batch-size": "train.micro_batch_size", "--seq-length": "dataset.seq_length"}
PRECISE = ("model.bf16", "model.fp16", "optimizer.bf16", "optimizer.fp16")
_HYDRA = ("_call_", "_partial_", "_args_", "_recursive_", "_convert_")


def identify(given: Input) -> float:
    """How surely this is Megatron-Bridge's or NeMo 2's: `model` with Megatron's names, and sections of theirs."""
    keys = {key for key, _, _ in _leaves(given.data, ())}
    model = {key for key in keys if key.startswith("model.") and key.removeprefix("model.") in MODEL}
    if not model or ("train.micro_batch_size" not in keys and "train.global_batch_size" not in keys):
        return 0.0
    return CERTAIN if {key.partition(".")[0] for key in keys} & set(OWN) else LIKELY


def extract(given: Input, context: Context) -> Piece:
    """What the configuration says of a plan."""
    piece = Piece(FORMAT, given.name)
    document = given.document or Document({}, {})
    leaves = {
        key: (value, f"{document.where(path)} {'.'.join(map(str, path))}")
        for key, value, path in _leaves(given.data, ())
    }
    values, places = _arguments(leaves, piece)
    settings = Settings(values, places, piece)
    give(settings, piece, context, _ranks(leaves), _variables(leaves))
    _own(leaves, settings, piece)
    if not any(key.startswith("mixed_precision") or key in PRECISE for key in leaves):
        piece.refuse(
            "mixed_precision", "missing", "the element types are needed", "Add mixed_precision: bf16_mixed.", given.name
        )
    piece.problems[:] = [_named(problem, places) for problem in piece.problems]
    _Bridged(
        Document(
            {key: value for key, (value, _) in leaves.items()},
            {(key,): where.rpartition(" ")[0] for key, (_, where) in leaves.items()},
        ),
        ROWS,
        piece,
    ).finish()
    return piece


def _named(problem: Problem, places: Mapping[str, str]) -> Problem:
    """A problem with an argument as one with the key that stands for it; what is missing may be in the recipe."""
    if not problem.path.startswith("--"):
        return problem
    plain = f"model.{problem.path.removeprefix('--').replace('-', '_')}"
    key = places.get(problem.path, "").rpartition(" ")[2] or BATCH.get(problem.path, plain)
    return replace(problem, path=key, fix=HINT if problem.found == "missing" else problem.fix)


class _Bridged(FlatKeyed):
    """Keys whose row may be that of an argument of Megatron's."""

    def __init__(self, document: Document, rows: Sequence[KeyRow], piece: Piece) -> None:
        super().__init__(document, rows, piece)
        self.exact |= {name: row for name in NEAR if (row := row_of(name)) is not None}

    def row(self, name: str) -> KeyRow | None:
        return super().row(name) or row_of(name)


def _leaves(data: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any, tuple[str, ...]]]:
    """Every value with its key as Megatron-Bridge writes it, and where it stands. A callable is its name."""
    for name, value in data.items() if isinstance(data, Mapping) else ():
        here = (*path, str(name))
        if isinstance(value, dict) and not _callable(value):
            yield from _leaves(value, here)
            continue
        key = ".".join(here)
        for old, new in MOVED:
            if key.startswith(old):
                key = new + key.removeprefix(old)
                break
        yield key, _plain(value), here


def _callable(value: Mapping[str, Any]) -> bool:
    """Whether a mapping only names something of Python's."""
    return isinstance(value.get("_target_"), str) and not set(value) - {"_target_", *_HYDRA}


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        args = value.get("_args_")
        last = str(value["_target_"]).rpartition(".")[2]
        return args[0] if isinstance(args, list) and len(args) == 1 and not value.get("_partial_") else last
    return value


def _arguments(leaves: Mapping[str, tuple[Any, str]], piece: Piece) -> tuple[dict[str, Any], dict[str, str]]:
    """Values by Megatron's argument, and their places under the file's own names."""
    values: dict[str, Any] = {}
    places: dict[str, str] = {}
    for key, (said, where) in (*leaves.items(), *_recipe(leaves, piece)):
        turned = key in NEGATED and isinstance(said, bool)
        name, value = (NEGATED[key], not said) if turned else (argument_of(key), said)
        if name and value is not None and not (isinstance(value, list) and not value):
            values.setdefault(name, value if isinstance(value, bool | list) else str(value))
            places.setdefault(name, where)
    for key, name, value in _implied(leaves):
        values.setdefault(name, value)
        places.setdefault(name, leaves[key][1])
    return values, places


def _recipe(leaves: Mapping[str, tuple[Any, str]], piece: Piece) -> Iterator[tuple[str, tuple[Any, str]]]:
    """What a named recipe of mixed precision sets."""
    value, where = leaves.get("mixed_precision", (None, ""))
    if value is None:
        return
    name = str(value).replace("-", "_")
    if name not in RECIPES:
        piece.refuse(
            "mixed_precision",
            f"found {str(value)[:60]!r}",
            f"one of {', '.join(RECIPES)} is known",
            where=where.rpartition(" ")[0],
        )
        return
    for key, one in RECIPES[name].items():
        yield f"mixed_precision.{key}", (one, where)


def _implied(leaves: Mapping[str, tuple[Any, str]]) -> Iterator[tuple[str, str, Any]]:
    """Arguments that other keys stand for together."""

    def value(key: str) -> Any:
        return leaves[key][0] if key in leaves else None

    if value("model.num_query_groups") is not None:
        yield "model.num_query_groups", "--group-query-attention", True
    act, gated = str(value("model.activation_func") or ""), value("model.gated_linear_unit") is True
    if act == "silu" and gated:
        yield "model.activation_func", "--swiglu", True
    elif act == "quick_gelu" and gated:
        yield "model.activation_func", "--quick-geglu", True
    elif act == "squared_relu":
        yield "model.activation_func", "--squared-relu", True
    if "model.vocab_size" in leaves and value("model.should_pad_vocab") is not True:
        yield "model.vocab_size", "--no-pad-vocab-size", True
    yield from _reduced(leaves)
    for key in ("model.seq_length", "dataset.seq_length", "dataset.sequence_length"):
        if value(key) is not None:
            yield key, "--max-position-embeddings", str(value(key))
            yield key, "--seq-length", str(value(key))


def _reduced(leaves: Mapping[str, tuple[Any, str]]) -> Iterator[tuple[str, str, Any]]:
    """How gradients are reduced: as mixed precision says (fp32 where it says nothing), else as DDP says."""
    own = "mixed_precision.grad_reduce_in_fp32"
    key = next(
        (one for one in (own, "mixed_precision", "mixed_precision.bf16", "ddp.grad_reduce_in_fp32") if one in leaves),
        "",
    )
    value = leaves[key][0] if key else None
    if value is None:
        return
    if key == "mixed_precision":
        value = RECIPES.get(str(value).replace("-", "_"), {}).get("grad_reduce_in_fp32", True)
    elif key == "mixed_precision.bf16":
        value = True
    yield key, "--accumulate-allreduce-grads-in-fp32" if value else "--grad-reduce-in-bf16", True


def _own(leaves: Mapping[str, tuple[Any, str]], given: Settings, piece: Piece) -> None:
    """What has no argument of Megatron's: activations by name, fusions, the loss, the adapter, the framework."""
    act, where = leaves.get("model.activation_func", (None, ""))
    if act is not None and "model.hidden_act" not in piece.given:
        if str(act) not in ACTIVATIONS:
            piece.refuse(
                "model.activation_func",
                f"found {str(act)[:60]!r}",
                f"one of {', '.join(ACTIVATIONS)} is known",
                where=where.rpartition(" ")[0],
            )
        piece.give("model.hidden_act", str(act), where)
    gated, at = leaves.get("model.gated_linear_unit", (None, ""))
    if isinstance(gated, bool) and "model.gated_linear_unit" not in piece.given:
        piece.give("model.gated_linear_unit", gated, at)
    fused, at = leaves.get("model.bias_activation_fusion", (None, ""))
    if isinstance(fused, bool) and find_option("stack.options", "bias_activation_fusion"):
        piece.give("stack.options.bias_activation_fusion", fused, at)
    if given.values.get("--cross-entropy-loss-fusion") is None and "stack.loss" not in piece.given:
        piece.filled.pop("stack.loss", None)
        piece.fill(FUSED_LOSS.path, FUSED_LOSS.value, FUSED_LOSS.why, FUSED_LOSS.source)
    nemo = any(path.split(".")[0] == "trainer" for path in (where.rpartition(" ")[2] for _, where in leaves.values()))
    piece.give("stack.framework", "nemo" if nemo else "megatron-bridge", piece.name)
    kept, at = leaves.get(KEPT, (None, ""))
    if given.has("--save") and isinstance(kept, int) and kept > 0:  # 0 removes none
        piece.give("save.limit", kept, at)
    _adapter(leaves, piece)


def _adapter(leaves: Mapping[str, tuple[Any, str]], piece: Piece) -> None:
    """The adapter, where there is one."""
    bare, where = leaves.get("peft", leaves.get("peft._target_", (None, "")))
    if bare is None:
        return
    name = str(bare).rpartition(".")[2]
    kind = {one.lower(): word for one, word in ADAPTERS.kinds}.get(name.lower())
    if kind is None:
        known = ", ".join(one for one, _ in ADAPTERS.kinds)
        piece.refuse("peft", f"found {name[:60]!r}", f"one of {known} is known", where=where.rpartition(" ")[0])
        return
    piece.give("adapter.kind", kind, where)
    piece.give("task", "sft", where)
    rank, at = leaves.get("peft.dim", (None, ""))
    if rank is None:
        piece.fill("adapter.r", ADAPTERS.rank, f"dim {ADAPTERS.rank}", ADAPTERS.source)
    else:
        piece.give("adapter.r", rank, at)
    targets, at = leaves.get("peft.target_modules", (None, ""))
    if isinstance(targets, list):
        piece.give("adapter.targets", [str(one) for one in targets], at)


def _ranks(leaves: Mapping[str, tuple[Any, str]]) -> Ranks:
    """Ranks of NeMo's trainer: devices x nodes."""
    devices, where = leaves.get(DEVICES, (None, ""))
    nodes = leaves.get(NODES, (1, ""))[0]
    counts = [one for one in (devices, nodes) if isinstance(one, int) and not isinstance(one, bool) and one >= 1]
    return Ranks(counts[0] * counts[-1], where) if len(counts) > 1 else Ranks(None)


def _variables(leaves: Mapping[str, tuple[Any, str]]) -> dict[str, tuple[str, str]]:
    """Environment variables that the configuration sets."""
    start = "env_vars."
    return {
        key.removeprefix(start): (str(value), where)
        for key, (value, where) in leaves.items()
        if key.startswith(start) and value is not None and not isinstance(value, dict | list)
    }


__all__ = ["BRIDGE", "FORMAT", "SECTIONS", "extract", "identify"]
