"""Axolotl: the batch, the optimizer, and what is trained."""

from __future__ import annotations

import re

from trainledger.facts.import_axolotl import AXOLOTL_FILLED, BATCH_SAME, OWN_OPTIMIZERS, PADDING, SAME
from trainledger.facts.option_row import Direction
from trainledger.importers.axolotl_model import settled_dtypes
from trainledger.importers.front_end import FrontEnd
from trainledger.importers.patterns import globbed
from trainledger.importers.piece import Given

_EXPRESSION = re.compile(r"[\\^$(){}|?+*\[\]]")  # what a name does not have


def batch(front: FrontEnd) -> None:
    """Micro-batch, accumulation and length. `batch_size` is the older way to say the accumulation."""
    own = front.own
    front.same(BATCH_SAME[0])
    if own.has("gradient_accumulation_steps"):
        front.same(BATCH_SAME[1])
    elif (total := own.whole("batch_size", least=1)) is not None:
        micro = own.whole("micro_batch_size", least=1) or 1
        front.hand("gradient_accumulation_steps", max(1, total // micro), "batch_size")
    length = own.whole("sequence_len", least=1)
    if length is not None:
        front.hand("max_length", _padded(front, length), "sequence_len")
    front.fill(AXOLOTL_FILLED, "per_device_train_batch_size", "gradient_accumulation_steps", "max_length")
    if own.flag("sample_packing"):
        front.hand("packing", True, "sample_packing")
    if (evaluated := own.whole("eval_batch_size")) and evaluated > (own.whole("micro_batch_size") or 1):
        _evaluated(front)
    if own.raw("sequence_len") is None and own.has("sequence_length", "max_seq_length"):
        name = own.name("sequence_length", "max_seq_length")
        front.refuse(name, "Axolotl has no such key, and cuts at 512 tokens", "Write sequence_len.")


def _evaluated(front: FrontEnd) -> None:
    """An evaluation in larger batches than training's, where there is a set for it."""
    if front.own.number("val_set_size") or front.own.raw("test_datasets"):
        front.hand("eval_strategy", "epoch", "eval_batch_size")
        front.hand("per_device_eval_batch_size", front.own.raw("eval_batch_size"), "eval_batch_size")


def _padded(front: FrontEnd, length: int) -> int:
    """The collator pads to a multiple, unless `pad_to_sequence_len: false` or preference training leaves it alone."""
    own = front.own
    if own.flag("pad_to_sequence_len") is False or own.raw("rl"):
        return length
    multiple = own.whole("pad_to_multiple_of", least=1) or PADDING.multiple
    return -(-length // multiple) * multiple


def optimizer(front: FrontEnd) -> None:
    """The optimizer by the Trainer's name, or one of Axolotl's own."""
    own = front.own
    word = own.text("optimizer")
    if word == "muon":
        front.piece.give("optimizer.name", "muon", own.where("optimizer"))
    elif word is not None:
        front.hand("optim", OWN_OPTIMIZERS.get(word, word), "optimizer")
        if word == "optimi_adamw":
            front.uncounted("optimizer", f"{own.where('optimizer')} (its Kahan sums)", Direction.LOW)
    else:
        front.fill(AXOLOTL_FILLED, "optim")
    targets = own.raw("optim_target_modules")
    front.hand("optim_target_modules", ["all-linear"] if targets == "all_linear" else targets, "optim_target_modules")
    front.same(*SAME)
    front.fill(AXOLOTL_FILLED, "ddp_find_unused_parameters")


def trained(front: FrontEnd) -> None:
    """Weights that are trained where not all are, and the dtypes that Axolotl's loader leaves behind."""
    own, piece = front.own, front.piece
    names = own.texts("unfrozen_parameters")
    if names and not own.has("adapter"):
        found = [globbed(name) for name in names]
        if all(found):
            patterns = list(dict.fromkeys(one for patterns in found for one in patterns))
            piece.give("trainable", patterns, own.where("unfrozen_parameters"))
        else:
            front.uncounted("unfrozen_parameters", own.where("unfrozen_parameters"), Direction.HIGH)
    layers = own.raw("peft_layers_to_transform")
    if layers is not None and own.has("adapter"):
        piece.given["adapter.options.layers_to_transform"] = Given(layers, own.where("peft_layers_to_transform"))
    ranks = own.raw("lora_rank_pattern")
    if isinstance(ranks, dict) and ranks and own.has("adapter"):
        piece.given["adapter.options.rank_pattern"] = Given(ranks, own.where("lora_rank_pattern"))
    if own.flag("peft_autocast_adapter_dtype") is False:
        piece.give("adapter.options.autocast_adapter_dtype", False, own.where("peft_autocast_adapter_dtype"))
    targets = own.raw("lora_target_modules")
    if isinstance(targets, str) and _EXPRESSION.search(targets) and not own.flag("lora_target_linear"):
        piece.give("adapter.targets", targets, own.where("lora_target_modules"))
    settled_dtypes(front)
