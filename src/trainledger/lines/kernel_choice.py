"""Which attention kernel runs: the plan's word, then PyTorch's own choice by release, architecture, dtype and shape."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.facts.dtypes import BF16, FP16, FP32, DType
from trainledger.facts.kernels_attention import (
    DENSE_CALL,
    FLASH_REPEATS,
    GROUPING,
    HEADS,
    OLD_EFFICIENT,
    ORDERS,
    OWN_CALL,
    TAKES,
    WORDS,
    Kernel,
    Takes,
)
from trainledger.facts.kernels_fused import FLASH
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class Asked:
    """One call of attention. `word`: the plan's (None: not known); `dtype` and `head` (elements) of the queries;
    `grouped`: fewer key than query heads; `family`: the model's type; `deprioritised`: the environment sets cuDNN back;
    `value`: head dim of the values (elements; 0: that of the queries).

    Releases and architecture may be empty: the newest, and one where flash runs.
    """

    word: str | None
    dtype: DType
    head: int
    mask: bool = False
    dropout: float = 0.0
    grouped: bool = False
    torch: str = ""
    architecture: str = ""
    deprioritised: bool = False
    transformers: str = ""
    family: str = ""
    value: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """The kernel; whether keys and values are repeated to all query heads before it is called; whether their gradients
    are summed over the query heads that share them outside of it; whether PyTorch pads heads for it; and whether what
    it is called with is copied head by head before."""

    kernel: Kernel
    repeats: bool
    summed: bool
    padded: bool = False
    dense: bool = False


def choose(asked: Asked) -> Choice:
    """The kernel of a call in training. Sources: the rows of `facts.kernels_attention`."""
    row = WORDS[asked.word or "sdpa"]
    if len(row.kernels) == 1 and row.kernels[0] is not Kernel.MATH:
        repeats = asked.grouped and (row.kernels[0] is Kernel.EAGER or _flash_repeats(asked))
        return Choice(row.kernels[0], repeats, repeats)
    if asked.grouped and asked.family in OWN_CALL.families:
        return Choice(Kernel.MATH, False, False)
    repeats = asked.grouped and not _handed_grouped(asked)
    grouped = asked.grouped and not repeats
    tries = row.kernels or _order(asked)
    kernel = next((one for one in tries if one is Kernel.MATH or _takes(asked, TAKES[one], grouped)), Kernel.MATH)
    summed = repeats or (grouped and kernel in (Kernel.MATH, Kernel.EFFICIENT))
    padded = kernel is Kernel.FLASH and bool(asked.head % FLASH.pad)
    return Choice(kernel, repeats, summed, padded, _dense(asked))


def given_masks(word: str | None) -> bool:
    """Whether the plan's word is PyTorch's own call, which Transformers gives a bool mask for a window."""
    return not WORDS[word or "sdpa"].kernels or Kernel.MATH in WORDS[word or "sdpa"].kernels


def level(architecture: str) -> int:
    """90 of `sm90`; another vendor's or an unknown architecture counts as the oldest that runs flash."""
    digits = architecture.removeprefix("sm")
    return int(digits) if architecture.startswith("sm") and digits.isdigit() else TAKES[Kernel.FLASH].oldest


def _order(asked: Asked) -> tuple[Kernel, ...]:
    for row in ORDERS:
        new = at_least(asked.torch, row.since) and not (row.until and at_least(asked.torch, row.until))
        here = not row.architectures or asked.architecture in row.architectures
        if new and here and not (row.preference and asked.deprioritised):
            return row.kernels
    return ORDERS[-1].kernels


def _handed_grouped(asked: Asked) -> bool:
    new = at_least(asked.torch, GROUPING.torch) and at_least(asked.transformers, GROUPING.transformers)
    small = asked.head <= GROUPING.largest or not at_least(asked.transformers, GROUPING.limited)
    return new and small and not asked.mask


def _dense(asked: Asked) -> bool:
    row, release = DENSE_CALL, asked.transformers
    here = bool(release) and at_least(release, row.since) and not at_least(release, row.until)
    if not here or asked.family not in row.apart:
        return here
    until = row.apart[asked.family]
    return until is not None and at_least(release, until)


def _flash_repeats(asked: Asked) -> bool:
    until = FLASH_REPEATS.until.get(asked.family)
    return bool(until and asked.transformers) and not at_least(asked.transformers, until or "")


def _takes(asked: Asked, row: Takes, grouped: bool) -> bool:
    if asked.mask and not row.mask:
        return False
    if grouped and not at_least(asked.torch, row.grouped):
        return False
    if row.dropout_unit and asked.dropout * row.dropout_unit % 1:
        return False
    return _runs(asked, row) and _fits(asked, row)


def _runs(asked: Asked, row: Takes) -> bool:
    """Whether the kernel runs this dtype on this architecture."""
    oldest = {FP32: row.wide, FP16: row.oldest, BF16: row.bf16}.get(asked.dtype, 0)
    return 0 < oldest <= level(asked.architecture) and row.oldest <= level(asked.architecture)


def _fits(asked: Asked, row: Takes) -> bool:
    """Whether the kernel takes these head dims."""
    value = asked.value or asked.head
    if row.equal and value != asked.head:
        return False
    for rule in HEADS:
        here = rule.kernel is row.kernel and asked.architecture in rule.architectures
        here = here and value == (rule.value or asked.head)
        if here and at_least(asked.torch, rule.since) and rule.over < asked.head <= rule.to:
            return rule.takes
    multiple = row.wide_multiple if asked.dtype == FP32 else row.multiple
    if row.kernel is Kernel.EFFICIENT and level(asked.architecture) < OLD_EFFICIENT.tensor_cores:
        half = asked.dtype != FP32 and level(asked.architecture) >= OLD_EFFICIENT.half
        multiple = row.multiple if half else 1
    largest = max(asked.head, value)
    return not (asked.head % multiple or value % multiple) and (not row.largest or largest <= row.largest)
