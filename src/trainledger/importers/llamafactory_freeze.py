"""LLaMA-Factory's freeze tuning: the last layers (or the first), whole or some modules of them, and others by name.

Its names are parts of a parameter's name, wherever they stand: `.30.` is a layer or an expert, `norm` every norm.
Source: llamafactory/model/adapter.py, _setup_freeze_tuning (0.9.6).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from trainledger.base.problems import InputError
from trainledger.facts.import_llamafactory import LAST_LAYERS
from trainledger.facts.peft import UPCAST
from trainledger.importers.front_end import FrontEnd
from trainledger.importers.model_source import resolve_model
from trainledger.importers.shapes import shape_of
from trainledger.model.build import build
from trainledger.model.counts import storages
from trainledger.model.names import fits
from trainledger.model.program import Model


def trained(front: FrontEnd, folder: str) -> None:
    """`finetuning_type: freeze`: what is trained, and that it is cast to fp32."""
    own, piece = front.own, front.piece
    if own.text("finetuning_type") != "freeze":
        return
    where = own.where("freeze_trainable_layers", "finetuning_type")
    model = _model(own.text("model_name_or_path") or "", folder)
    if model is None:
        piece.refuse(
            "finetuning_type", "freeze", "the model's number of layers is needed, and is not known", where=where
        )
        return
    numbers = _numbers(front, sum(block.count for block in model.blocks))
    container = model.blocks[0].name.rpartition(".")[-1]
    paths = [str(at) if any(block.top_k for block in model.blocks) else f"{container}.{at}" for at in numbers]
    names = [name for name, _ in storages(model)]
    inner = {"all", *(weight.name.partition(".")[0] for block in model.blocks for weight in block.weights)}
    around = [name.split(".") for name in names if not any(part.isdigit() for part in name.split("."))]
    outer = {part for *path, _ in around for part in path[-1:]}
    modules = _known(front, "freeze_trainable_modules", inner) or ["all"]
    patterns = [path if name == "all" else f"{path}.{name}" for path in paths for name in modules]
    extra = [_anywhere(one, names) for one in _known(front, "freeze_extra_modules", outer)]
    piece.give("trainable", [*patterns, *extra] or "none", where)
    if not (own.flag("pure_bf16") or own.flag("use_badam")):
        piece.give(f"stack.options.{UPCAST.option}", True, own.where("finetuning_type"))


def _numbers(front: FrontEnd, count: int) -> Sequence[int]:
    """The layers that are trained, of so many."""
    given = front.own.number("freeze_trainable_layers")
    chosen = int(given) if given is not None else int(str(LAST_LAYERS.value))
    if not front.own.flag("use_llama_pro"):
        return range(max(0, count - chosen), count) if chosen > 0 else range(min(-chosen, count))
    if chosen <= 0 or count % chosen:
        front.refuse("use_llama_pro", f"layers that are trained must divide the {count} that there are", "")
        return ()
    stride = count // chosen
    return range(stride - 1, count + stride - 1, stride)


def _known(front: FrontEnd, key: str, names: set[str]) -> list[str]:
    """The modules that a key names, of those that there are."""
    given = front.own.texts(key) or []
    for name in (one for one in given if one not in names):
        front.refuse(key, f"{name} is none of {', '.join(sorted(names))}", "")
    return [one for one in given if one in names]


def _anywhere(name: str, names: Sequence[str]) -> str:
    """A pattern for every name that has this text in it."""
    return name if all(fits(one, (name,)) for one in names if name in one) else f"*{name}*"


def _model(name: str, folder: str) -> Model | None:
    """The model that is named, or the one that it was tuned from; None where neither is known."""
    shape = shape_of(name)
    for one in (name,) if shape is None else (name, shape.base):
        with suppress(InputError):
            return build(resolve_model(one, folder)[0])
    return None
