"""How losses over the vocabulary are computed: what each implementation makes, by release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from trainledger.base.sources import Source
from trainledger.facts.versions import at_least


@dataclass(frozen=True, slots=True)
class CausalLoss:
    """Transformers' next-token loss from a release on. `shifts`: the logits are shifted, which copies all but the last
    token's; otherwise the labels are. `early`: the model itself casts the logits to fp32 and returns them so."""

    since: str
    shifts: bool
    early: bool
    source: Source


def _transformers(note: str, version: str) -> Source:
    return Source("Transformers next-token loss", note, version)


CAUSAL_LOSSES: tuple[CausalLoss, ...] = (
    CausalLoss(
        "4.49", False, False, _transformers("transformers/loss/loss_utils.py, ForCausalLMLoss", "4.49.0 to 5.24.0")
    ),
    CausalLoss("4.46", True, False, _transformers("transformers/loss/loss_utils.py, ForCausalLMLoss", "4.48.1")),
    CausalLoss("", True, True, _transformers("transformers/models/llama/modeling_llama.py, forward", "4.45.2")),
)


@dataclass(frozen=True, slots=True)
class PlainLoss:
    """Families whose own class computed the loss in the logits' dtype before a release."""

    families: tuple[str, ...]
    until: str
    source: Source


PLAIN_LOSSES: tuple[PlainLoss, ...] = (
    PlainLoss(
        ("gpt2", "gpt_bigcode", "gpt_neox", "opt", "bloom", "falcon", "mpt", "stablelm", "roberta", "xlm-roberta"),
        "4.49",
        _transformers("transformers/models/*/modeling_*.py, CrossEntropyLoss without a cast", "4.45.2, 4.48.1"),
    ),
    PlainLoss(("bert",), "4.46", _transformers("transformers/models/bert/modeling_bert.py", "4.45.2")),
)


def plain_loss(family: str, release: str) -> bool:
    """Whether that family's class leaves the logits in their dtype, in that release of Transformers."""
    return any(family in row.families and not at_least(release, row.until) for row in PLAIN_LOSSES)


@dataclass(frozen=True, slots=True)
class FusedLinear:
    """Liger's fused head and loss from a release on: chunks of tokens, whose gradients are made in forward.

    `upcast`: a chunk's logits are copied to fp32 and back; `scaled`: they are copied once more, times a factor;
    `adds`: a chunk's weight gradient is a product of its own, cast to fp32 and then added, else the product adds by
    itself; `shifts`: the model's code copies the hidden states without the last token.
    """

    since: str
    upcast: bool
    scaled: bool
    adds: bool
    shifts: bool
    source: Source


def _liger(version: str) -> Source:
    return Source("Liger-Kernel fused linear cross-entropy", "liger_kernel/ops/fused_linear_cross_entropy.py", version)


FUSED_LINEAR: tuple[FusedLinear, ...] = (
    FusedLinear("0.6.2", False, False, True, False, _liger("0.6.2 to 0.8.0")),
    FusedLinear("0.5.10", False, False, False, False, _liger("0.5.10, 0.6.0")),
    FusedLinear("0.5.0", False, True, False, True, _liger("0.5.0, 0.5.2")),
    FusedLinear("", True, True, False, True, _liger("0.3.1, 0.4.2; fms-acceleration's copy, foak 0.7.4")),
)


# Chunks that are written out one by one, of however many: the first two make what the loop keeps from chunk to chunk;
# from the third on chunks take the same blocks in turns of two.
WRITTEN_CHUNKS = 4


@dataclass(frozen=True, slots=True)
class ChunkedHead:
    """TRL's head over chunks of the vocabulary: tokens and vocabulary rows of one tile, fp32 statistics per token
    while it runs and after it, and results per token that are scattered back."""

    tokens: int
    rows: int
    running: int
    results: int
    source: Source


CHUNKED_HEAD = ChunkedHead(
    4096, 32768, 7, 3, Source("TRL fused head", "trl/kernels/chunked_logprob.py, trl/trainer/utils.py", "1.16.0")
)


@dataclass(frozen=True, slots=True)
class TokenLoss:
    """Frameworks whose log-probabilities of tokens come from a kernel that reads logits in their own dtype and saves
    them; `in_place`: those in which their gradient is written over them."""

    frameworks: tuple[str, ...]
    in_place: tuple[str, ...]
    source: Source


TOKEN_LOSS = TokenLoss(
    ("verl", "openrlhf"),
    ("verl",),
    Source(
        "flash-attn cross-entropy in verl and OpenRLHF",
        "flash_attn/ops/triton/cross_entropy.py; verl/utils/torch_functional.py, logprobs_from_logits_flash_attn; "
        "openrlhf/models/utils.py, log_probs_from_logits",
        "2.7; b178a3c, 2026-01; 3c3be62, 2026-08",
    ),
)


Since = TypeVar("Since", CausalLoss, FusedLinear)


def of_release(rows: tuple[Since, ...], release: str) -> Since:
    """The newest row that is not after the release; an unknown release counts as the newest."""
    return next(row for row in rows if at_least(release, row.since))
