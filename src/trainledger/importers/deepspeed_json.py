"""A DeepSpeed configuration (JSON with comments and trailing commas), with Hugging Face's `auto`."""

from __future__ import annotations

from typing import Any

from trainledger.facts.deepspeed import STAGES as ZERO_STAGES
from trainledger.facts.import_deepspeed import BY_HIDDEN_SIZE, DEEPSPEED_KEYS, FILLED_IN, HF
from trainledger.facts.import_hf_optim import DEEPSPEED_OPTIMS, OptimRow
from trainledger.facts.import_rows import CERTAIN, LIKELY
from trainledger.importers.arguments import Arguments
from trainledger.importers.document import Document
from trainledger.importers.draft import Uncounted
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import Keyed
from trainledger.importers.piece import AUTO, Given, Piece

MICRO, STEPS, TOTAL = "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size"
CLIP, ZERO = "gradient_clipping", "zero_optimization"
STAGES = {0: "ddp", **{number: name for name, number in ZERO_STAGES.items()}}
ON = "deepspeed.on"  # the fact that DeepSpeed runs
_PLACES = ("cpu", "nvme")


def identify(given: Input) -> float:
    """Certain where `zero_optimization` is a mapping; likely where the batch's keys are DeepSpeed's."""
    if isinstance(given.data.get(ZERO), dict):
        return CERTAIN
    return LIKELY if {MICRO, TOTAL} & set(given.data) else 0


def extract(given: Input, context: Context) -> Piece:
    """What the configuration says. `auto` stays open for the run's arguments; where nothing can fill it in it is a
    problem, and it is never read as a number."""
    piece = Piece("DeepSpeed configuration", given.name)
    if given.document is not None:
        read_config(piece, given.document)
    return piece


def deepspeed_argument(given: Arguments) -> None:
    """The Trainer's `deepspeed`: a mapping in place, or the path of a file that is read as one of its own."""
    raw, where = given.raw("deepspeed"), given.where("deepspeed")
    if isinstance(raw, str) and raw.strip().startswith("{"):
        raw = given.mapping("deepspeed")
    if isinstance(raw, dict):
        read_config(given.piece, Document(raw, {(): where}))
    elif isinstance(raw, str) and raw.strip():
        given.piece.files.append((raw.strip(), where))


def read_config(piece: Piece, document: Document) -> None:
    """Read a DeepSpeed configuration into the piece."""
    data = _without_auto(piece, Keyed(document, DEEPSPEED_KEYS, piece))
    keyed = Keyed(Document(data, document.places), DEEPSPEED_KEYS, piece)
    piece.facts[ON] = Given(True, keyed.where(ZERO))
    values = {name: keyed.raw(name) for name in (MICRO, STEPS, TOTAL, CLIP, *_READ)}
    given = Arguments({name: Given(value, keyed.where(name)) for name, value in values.items()}, piece)
    _stage(given)
    _batch(given, Keyed(document, DEEPSPEED_KEYS, piece))
    _dtypes(given)
    _optimizer(given, keyed)
    _offload(given)
    keyed.finish()


_READ = (
    f"{ZERO}.stage", f"{ZERO}.cpu_offload", f"{ZERO}.cpu_offload_params", f"{ZERO}.cpu_offload_use_pin_memory",
    f"{ZERO}.offload_optimizer.device", f"{ZERO}.offload_param.device", "bf16.enabled", "bfloat16.enabled",
    "fp16.enabled", "amp.enabled", "torch_autocast.enabled", "optimizer.type", "optimizer.params.torch_adam",
    "optimizer.params.momentum",
)  # fmt: skip


def _without_auto(piece: Piece, keyed: Keyed) -> Any:
    """The data without its autos: each is filled in, left to the run's arguments, or a problem."""

    def clean(data: Any, prefix: str) -> Any:
        if not isinstance(data, dict):
            return data
        kept = {}
        for key, value in data.items():
            name = f"{prefix}{key}"
            if value != AUTO:
                kept[key] = clean(value, f"{name}.")
            elif name in BY_HIDDEN_SIZE:
                path = f"parallel.options.{key}"
                piece.fill(path, AUTO, f"auto: {BY_HIDDEN_SIZE[name]}", HF)
            elif name in FILLED_IN:
                piece.facts[f"deepspeed.auto.{name}"] = Given(AUTO, keyed.where(name))
            elif keyed.row(name) is not None:
                allowed = "neither the Trainer nor accelerate fills this key in"
                piece.refuse(name, "auto", allowed, "Give it a value, or leave it out.", keyed.where(name))
        return kept

    return clean(keyed.data(), "")


def _stage(given: Arguments) -> None:
    name = f"{ZERO}.stage"
    stage = given.whole(name)
    stage = 0 if stage is None else stage
    if stage not in STAGES:
        given.piece.refuse(name, f"found {stage}", "a stage of 0 to 3 is needed", where=given.where(name))
        return
    where = given.where(name) or given.piece.name
    given.piece.facts["deepspeed.stage"] = Given(stage, where)
    if stage:
        given.piece.give("parallel.strategy", STAGES[stage], where)
    else:
        given.piece.fill("parallel.strategy", STAGES[0], "stage 0 replicates", HF)
        given.piece.give("parallel.options.stage", 0, where)


def _batch(given: Arguments, whole: Keyed) -> None:
    for name, path in ((MICRO, "batch.micro_batch"), (STEPS, "batch.accumulation"), (TOTAL, "batch.global")):
        value = given.whole(name, least=1)
        if value is not None:
            given.piece.facts[f"deepspeed.{name}"] = Given(value, given.where(name))
            given.piece.give(path, value, given.where(name))
    clip = given.number(CLIP)
    if clip is not None:
        given.piece.give("optimizer.grad_clip", float(clip) if clip > 0 else None, given.where(CLIP))
    given.piece.facts["deepspeed.clip"] = Given(whole.raw(CLIP), whole.where(CLIP))


def _dtypes(given: Arguments) -> None:
    piece = given.piece
    for name, fact in (("bf16.enabled", "bf16"), ("bfloat16.enabled", "bf16"), ("fp16.enabled", "fp16")):
        flag = given.flag(name)
        if flag is not None:
            piece.facts[f"deepspeed.{fact}"] = Given(flag, given.where(name))
    for name in ("amp.enabled", "torch_autocast.enabled"):
        if given.flag(name):
            piece.uncounted.append(Uncounted(name, given.where(name), "the ledger may be too low or too high"))


def _optimizer(given: Arguments, keyed: Keyed) -> None:
    kind = given.text("optimizer.type")
    if kind is None:
        return
    row: OptimRow | None = DEEPSPEED_OPTIMS.get(kind.lower())
    where = given.where("optimizer.type")
    if row is None:
        allowed = f"one of {', '.join(sorted(DEEPSPEED_OPTIMS))} has a rule"
        given.piece.refuse("optimizer.type", f"found {kind!r}", allowed, where=where)
        return
    name = row.optimizer
    if name == "sgd" and given.number("optimizer.params.momentum"):
        name = "sgd-momentum"
    given.piece.give("optimizer.name", name, where)
    how = "foreach" if given.flag("optimizer.params.torch_adam") else row.implementation
    given.piece.facts["deepspeed.optimizer"] = Given(how, where)


def _offload(given: Arguments) -> None:
    """Where the optimizer and the weights go; old files say so with `cpu_offload`."""
    piece = given.piece
    for part, old, section in (
        ("optimizer", "cpu_offload", "offload_optimizer"),
        ("params", "cpu_offload_params", "offload_param"),
    ):
        name = f"{ZERO}.{section}.device"
        place = given.text(name)
        if place in _PLACES:
            piece.give(f"offload.{part}", place, given.where(name))
        elif place not in (None, "none"):
            piece.refuse(name, f"found {place!r}", "one of none, cpu, nvme is needed", where=given.where(name))
        elif given.flag(f"{ZERO}.{old}"):
            piece.give(f"offload.{part}", "cpu", given.where(f"{ZERO}.{old}"))
            if given.flag(f"{ZERO}.cpu_offload_use_pin_memory"):
                piece.give(f"parallel.options.{section}.pin_memory", True, given.where(f"{ZERO}.{old}"))
