"""verl's command lines (`python3 -m verl.trainer.main_ppo key=value ...`) and configurations: the policy's update, and
who acts beside it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trainledger.base.problems import nearest
from trainledger.facts.import_rl import (
    ACTOR,
    ADVANTAGES,
    DYNAMIC,
    EACH,
    ENGINES,
    ESTIMATORS,
    KEPT,
    MICRO,
    MINI,
    MODEL,
    NODES,
    PER_NODE,
    PRECISIONS,
    PROMPT,
    ROLLOUT,
    TOKENS,
    TUNED_TOGETHER,
    VERL_FILLED,
    VERL_NODE,
    VERL_ROWS,
    VERL_TOKENS,
    VERL_TUNING,
)  # fmt: skip
from trainledger.facts.import_rows import CERTAIN
from trainledger.facts.import_verl_megatron import FILLED
from trainledger.facts.option_row import Direction
from trainledger.importers import verl_megatron
from trainledger.importers.command_line import Line, lines_of
from trainledger.importers.command_ranks import Ranks, ask, ranks_of
from trainledger.importers.document import Document
from trainledger.importers.draft import Uncounted, Unknown
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import FlatKeyed
from trainledger.importers.piece import Piece, Rank
from trainledger.importers.rl_roles import packed, verl_roles
from trainledger.importers.settings import Settings
from trainledger.importers.shell_words import Word
from trainledger.importers.verl_sizes import each
from trainledger.importers.yaml_text import scalar

FORMAT = "verl command line or configuration"
TUNED = "model.partial_pretrain"  # of supervised training alone
PROGRAMS = ("verl.trainer.main_ppo", "main_ppo.py", "main_dapo", "fsdp_sft_trainer", "verl.trainer.sft_trainer")


def identify(given: Input) -> float:
    """How surely this is verl's."""
    if given.script is not None:
        return CERTAIN if _line(given) is not None else 0.0
    return (
        CERTAIN
        if isinstance(given.data.get("actor_rollout_ref"), dict) or {"partial_pretrain"} <= set(_part(given, "model"))
        else 0.0
    )


def extract(given: Input, context: Context) -> Piece:
    """What it says of a plan of the policy's update."""
    piece = Piece(FORMAT, given.name, Rank.COMMAND)
    leaves = dict(_of_script(given) if given.script is not None else _of_mapping(given))
    ranks = _started(given) if TUNED in leaves else None
    if ranks is not None and (ranks.count is not None or (TUNED_TOGETHER in leaves and ranks.open)):
        leaves[PER_NODE] = (ranks.open if ranks.count is None else ranks.count, ranks.where or given.name)
        leaves[NODES] = (1, ranks.where or given.name)
    held = Settings(
        {key: value for key, (value, _) in leaves.items()}, {key: where for key, (_, where) in leaves.items()}, piece
    )
    tunes = held.has(TUNED)
    megatron = not tunes and verl_megatron.trains(held, _engine(held))
    if not megatron:
        piece.give("stack.framework", "verl", piece.name)
    sizes = each(held, megatron)
    (_tune if tunes else _policy)(sizes, piece)
    _world(held, piece, ranks)
    for row in FILLED if megatron else (*VERL_FILLED, *(VERL_TUNING if tunes else ())):
        if row.path not in piece.given and not any(path.startswith(f"{row.path}.") for path in piece.given):
            piece.fill(row.path, row.value, row.why, row.source)
    FlatKeyed(
        Document(dict(held.values), {(key,): where.rpartition(" ")[0] for key, where in held.places.items()}),
        VERL_ROWS,
        piece,
    ).finish()
    return piece


def _policy(given: Settings, piece: Piece) -> None:
    """Reinforcement learning: the policy's keys."""
    name = "algorithm.adv_estimator"
    kind = given.text(name) or "gae" if given.has(name) else "gae"
    piece.give("task", ESTIMATORS.get(kind, "grpo"), given.where(name))
    if kind not in ADVANTAGES:
        piece.unknown.append(Unknown(f"{name}={kind}", given.where(name), nearest(kind, ADVANTAGES)))
    _shared(given, piece, MODEL, f"{MODEL}path", ACTOR)
    engine = _engine(given)
    megatron = verl_megatron.trains(given, engine)
    if megatron:
        verl_megatron.policy(given, piece, f"{ACTOR}strategy")
    elif engine not in ENGINES:
        given.refuse(f"{ACTOR}strategy", engine, f"one of {', '.join(ENGINES)}, megatron is known")
        return
    else:
        piece.give("parallel.strategy", ENGINES[engine], given.where(f"{ACTOR}strategy"))
    _batch(given, piece)
    verl_roles(given, piece, megatron)
    if given.has(KEPT):
        given.give("save.limit", given.whole(KEPT), KEPT)
    if given.has(f"{ACTOR}grad_clip"):
        given.give("optimizer.grad_clip", given.number(f"{ACTOR}grad_clip"), f"{ACTOR}grad_clip")


def _engine(given: Settings) -> str:
    """What trains the policy."""
    return (given.text(f"{ACTOR}strategy") if given.has(f"{ACTOR}strategy") else None) or "fsdp"


def _shared(given: Settings, piece: Piece, model: str, path: str, actor: str) -> None:
    """What both trainers have: the model, its recomputation, adapter and dtype, Ulysses' sequence parallelism."""
    if given.has(path):
        given.give("model", given.text(path), path)
    else:
        piece.refuse(path, "missing", "the model that is trained is needed", where=piece.name)
    again = f"{model}enable_gradient_checkpointing"
    if given.values.get(again) is not None and not verl_megatron.trains(given, _engine(given)):
        given.give("stack.recompute.kind", "full" if given.has(again) else "none", again)
        if given.has(again):
            given.give("stack.recompute.reentrant", False, again)
    rank, saved = f"{model}lora_rank", f"{model}lora_adapter_path"
    if given.has(saved):  # its rank and targets are in its own file, which may stand beside this one
        given.give("adapter.kind", "lora", saved)
        piece.uncounted.append(Uncounted(saved, given.where(saved), Direction.EITHER.value))
    elif given.has(rank) and given.whole(rank, 0):
        given.give("adapter.kind", "lora", rank)
        given.give("adapter.r", given.whole(rank), rank)
        targets = given.texts(f"{model}target_modules")
        piece.give(
            "adapter.targets",
            targets if targets and targets != ["all-linear"] else "all-linear",
            given.where(f"{model}target_modules"),
        )
    for name, key in ((f"{actor}fsdp_config.model_dtype", "weights"), (f"{actor}fsdp_config.dtype", "compute")):
        if given.has(name):
            given.give(f"precision.{key}", given.choice(name, PRECISIONS), name)
    if given.has(f"{model}use_liger"):
        given.give("stack.kernels", ["liger"], f"{model}use_liger")
    ulysses = f"{actor if actor == ACTOR else ''}ulysses_sequence_parallel_size"
    degree = given.whole(ulysses) if given.has(ulysses) else None
    if degree is not None and degree > 1:
        given.give("parallel.cp", degree, ulysses)
        given.give("parallel.options.cp_comm_type", "ulysses", ulysses)


def _batch(given: Settings, piece: Piece) -> None:
    """Sequences of the policy's micro-batches: whole ones, or tokens that are packed."""
    lengths = [
        given.whole(name) if given.has(name) else PROMPT.value
        for name in ("data.max_prompt_length", "data.max_response_length")
    ]
    total = sum(one for one in lengths if isinstance(one, int))
    if given.has(DYNAMIC):
        piece.give("batch.micro_batch", 1, given.where(DYNAMIC))
        packed(given, "batch.sequence", TOKENS, VERL_TOKENS, "parallel.cp")
        return
    piece.give("batch.sequence", total, given.where("data.max_response_length"))
    if given.said(MICRO):
        given.give("batch.micro_batch", given.whole(MICRO), MICRO)
    elif not given.said(MICRO.removesuffix(EACH)):
        piece.refuse(MICRO, "missing", "the policy's micro-batch is needed", "Or set use_dynamic_bsz=True.", piece.name)
    if given.has(MINI):
        answers = (given.whole(f"{ROLLOUT}n") if given.has(f"{ROLLOUT}n") else None) or 1
        given.give("batch.global", (given.whole(MINI) or 1) * answers, MINI)


def _tune(given: Settings, piece: Piece) -> None:
    """Supervised fine-tuning."""
    piece.give("task", "sft", given.where(TUNED))
    _shared(given, piece, "model.", TUNED, "model.")
    engine = given.choice("model.strategy", ENGINES) if given.has("model.strategy") else "fsdp2"
    given.give("parallel.strategy", engine, "model.strategy")
    for name, path in (
        ("data.micro_batch_size_per_gpu", "batch.micro_batch"),
        ("data.max_length", "batch.sequence"),
        ("data.train_batch_size", "batch.global"),
    ):
        if given.has(name):
            given.give(path, given.whole(name), name)
    if given.has("optim.clip_grad"):
        given.give("optimizer.grad_clip", given.number("optim.clip_grad"), "optim.clip_grad")
    if given.has("model.fsdp_config.offload_params"):
        given.give("offload.params", "cpu", "model.fsdp_config.offload_params")


def _world(given: Settings, piece: Piece, ranks: Ranks | None) -> None:
    """Devices of a node times nodes; the ranks that shard where not all do."""
    per = given.whole(PER_NODE) if given.said(PER_NODE) else None
    nodes = (given.whole(NODES) if given.has(NODES) else None) or 1
    if per is not None:
        given.give("parallel.world", per * nodes, PER_NODE)
    elif given.has(TUNED) and not given.said(PER_NODE):
        ask(piece, ranks)
    elif not given.said(PER_NODE):
        piece.fill(VERL_NODE.path, int(str(VERL_NODE.value)) * nodes, VERL_NODE.why, VERL_NODE.source)
    name = f"{ACTOR}fsdp_config.fsdp_size"
    if given.has(name) and str(given.values[name]) != "-1":
        given.give("parallel.strategy", "hsdp", name)
        given.give("parallel.shard", given.whole(name), name)


def _line(given: Input) -> Line | None:
    """The command that runs verl's trainer, else a program of the user's own that takes its keys."""
    if given.script is None:
        return None
    lines = tuple(lines_of(given.script))
    known = (line for line in lines if any(one in line.program.text for one in PROGRAMS))
    return next(known, None) or next((line for line in lines if any(map(_verls, line.words))), None)


def _started(given: Input) -> Ranks | None:
    """Ranks that the command of supervised training starts: these count, whatever the trainer's own keys say."""
    line = _line(given)
    return ranks_of(line, given) if line is not None else None


def _verls(word: Word) -> bool:
    return word.text.lstrip("+").startswith(f"{MODEL}path=")


def _part(given: Input, name: str) -> Mapping[str, Any]:
    found = given.data.get(name)
    return found if isinstance(found, dict) else {}


def _of_script(given: Input) -> Iterator[tuple[str, tuple[Any, str]]]:
    """Overrides as Hydra reads them: `key=value`, `+key=value`, `++key=value`; the last one counts."""
    line = _line(given)
    for word in line.words if line is not None else ():
        key, equals, value = word.text.partition("=")
        key = key.lstrip("+")
        if key.lstrip("-") in ("config-name", "config-path", "config-dir"):
            if "megatron" in value:
                yield f"{ACTOR}strategy", ("megatron", f"{word.where} {key}")
        elif equals and not key.startswith("-"):
            yield key, (_hydra(value), f"{word.where} {key}")


def _hydra(text: str) -> Any:
    """A value: a list in brackets is its words."""
    if text.startswith("[") and text.endswith("]"):
        return [one.strip(" \"'") for one in text[1:-1].split(",") if one.strip()]
    return scalar(text)


def _of_mapping(given: Input) -> Iterator[tuple[str, tuple[Any, str]]]:
    document = given.document or Document({}, {})

    def leaves(data: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, tuple[Any, str]]]:
        for name, value in data.items():
            here = (*path, str(name))
            if isinstance(value, dict):
                yield from leaves(value, here)
            elif not (isinstance(value, str) and value.startswith("${")) and value is not None:
                yield ".".join(here), (value, f"{document.where(here)} {'.'.join(here)}")

    yield from leaves(given.data, ())
