"""Adapters and quantised weights by the names of TRL's ModelConfig and of the scripts around PEFT."""

from __future__ import annotations

from trainledger.facts.import_hf_filled import TRL_ADAPTER
from trainledger.importers.arguments import Arguments
from trainledger.importers.draft import Ignored

_SWITCH = ("use_peft", "use_lora")
_RANK = ("lora_r", "lora_rank")
ALL_LINEAR = "all-linear"
# Keys of the plan and the arguments that say them, in both directions.
PLAIN = (("adapter.dropout", "lora_dropout"), ("adapter.options.bias", "lora_bias"))
TEXTS = (
    ("adapter.targets", "lora_target_modules"),
    ("adapter.train_extra", "lora_modules_to_save"),
    ("adapter.options.target_parameters", "lora_target_parameters"),
)
_FP4, _NF4 = "fp4", "nf4"


def adapter_keys(given: Arguments, trl: bool) -> None:
    """LoRA's settings. TRL makes an adapter only with `use_peft`; other scripts where they are given a rank or targets,
    too."""
    piece, switch = given.piece, given.flag(*_SWITCH)
    asked = given.has(*_RANK, "lora_target_modules")
    if switch is False or not (switch or (asked and not trl)):
        if asked and trl and switch is None:
            name = given.name(*_RANK, "lora_target_modules")
            piece.ignored.append(Ignored(given.where(name), "TRL makes an adapter only with use_peft: true"))
        return
    where = given.where(*_SWITCH, *_RANK, "lora_target_modules")
    piece.give("adapter.kind", "dora" if given.flag("use_dora") else "lora", where)
    rank = given.whole(*_RANK, least=1)
    if rank is not None:
        piece.give("adapter.r", rank, given.where(*_RANK))
    for path, name in PLAIN:
        value = given.number(name) if path == "adapter.dropout" else given.text(name)
        if value is not None:
            piece.give(path, value, given.where(name))
    for path, name in TEXTS:
        if texts := given.texts(name):
            whole = texts in ([ALL_LINEAR], ["all_linear"])
            piece.give(path, ALL_LINEAR if whole else texts, given.where(name))
    for row in TRL_ADAPTER if trl else ():
        piece.fill(row.path, row.value, row.why, row.source)


def quantization_keys(given: Arguments, trl: bool) -> None:
    """bitsandbytes' settings. TRL's 4-bit format is nf4 where none is named, BitsAndBytesConfig's own is fp4."""
    four, eight = ("load_in_4bit", "use_4bit"), ("load_in_8bit", "use_8bit")
    piece = given.piece
    if given.flag(*four) and given.flag(*eight):
        piece.refuse(
            given.name(*eight), "given with 4 bits", "weights are stored in one format", "Leave one out.",
            given.where(*eight),
        )  # fmt: skip
    elif given.flag(*four):
        kind = given.text("bnb_4bit_quant_type") or (_NF4 if trl else _FP4)
        piece.give("quantization.kind", kind, given.where("bnb_4bit_quant_type", *four))
        double = ("use_bnb_nested_quant", "bnb_4bit_use_double_quant", "use_nested_quant")
        flag = given.flag(*double)
        if flag is not None:
            piece.give("quantization.double", flag, given.where(*double))
    elif given.flag(*eight):
        piece.give("quantization.kind", "int8", given.where(*eight))
