"""PEFT's adapter_config.json."""

from __future__ import annotations

from trainledger.facts.import_peft import ADAPTER_KEYS, ADAPTER_KINDS, ADAPTER_OPTIONS
from trainledger.facts.import_rows import CERTAIN
from trainledger.importers.arguments import Arguments
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.keyed import Keyed
from trainledger.importers.piece import Given, Piece


def identify(given: Input) -> float:
    """Certain where `peft_type` stands."""
    return CERTAIN if "peft_type" in given.data else 0


def extract(given: Input, context: Context) -> Piece:
    """The adapter, and the model that it is for."""
    piece = Piece("adapter configuration", given.name)
    if given.document is None:
        return piece
    keyed = Keyed(given.document, ADAPTER_KEYS, piece)
    args = Arguments({name: Given(value, keyed.where(name)) for name, value in keyed.data().items()}, piece)
    word = (args.text("peft_type") or "").upper()
    kind = ADAPTER_KINDS.get(word)
    if kind is None:
        known = ", ".join(sorted(ADAPTER_KINDS))
        piece.refuse("peft_type", f"found {word or 'nothing'}", f"one of {known}", where=args.where("peft_type"))
        return piece
    piece.give("adapter.kind", "dora" if kind == "lora" and args.flag("use_dora") else kind, args.where("peft_type"))
    rank = args.whole("r", least=0)
    if rank:
        piece.give("adapter.r", rank, args.where("r"))
    dropout = args.number("lora_dropout")
    if dropout is not None:
        piece.give("adapter.dropout", dropout, args.where("lora_dropout"))
    targets = args.raw("target_modules")
    if isinstance(targets, list):
        targets = args.texts("target_modules")
        targets = sorted(targets) if targets else None
    if targets:
        piece.give("adapter.targets", targets, args.where("target_modules"))
    if extra := args.texts("modules_to_save"):
        piece.give("adapter.train_extra", extra, args.where("modules_to_save"))
    for name in ("bias", "lora_bias", *ADAPTER_OPTIONS):
        value = args.raw(name)
        if value not in (None, False, "none", {}, [], 0, 0.0):
            piece.give(f"adapter.options.{name}", value, args.where(name))
    base = args.text("base_model_name_or_path")
    if base:
        piece.facts["model.base"] = Given(base, args.where("base_model_name_or_path"))
    keyed.finish()
    return piece
