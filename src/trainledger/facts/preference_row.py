"""What a row of a trainer's loss over preferences says: its passes, its batch, and how it reads all logits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.base.sources import Source

TRL, LLAMAFACTORY, SWIFT = "trl", "llamafactory", "ms-swift"  # packages whose trainers run on Transformers
ON_TRANSFORMERS = (TRL, LLAMAFACTORY, SWIFT)
# how a loss is made: by a fused head; of named logits; of all logits as a Reading says; of a teacher's logits
FUSED, NAMED, READ, DIVERGENCE = "fused", "named", "read", "divergence"


class Picked(StrEnum):
    """How log-probabilities of tokens come of all logits: a log-softmax of all of them; rows one by one; a kernel; a
    log-softmax whose sign is turned, of which a sum over all words is taken besides."""

    WHOLE = "whole"
    ROWS = "rows"
    KERNEL = "kernel"
    SMOOTHED = "smoothed"


class Cut(StrEnum):
    """What is made of the logits without the last token's: nothing, as labels are moved instead; a view; a copy. Of
    sequences that were sampled the completions' alone are read, and the head makes no others where it can be told so:
    a view; these over the temperature at which they were sampled, a copy; the same, but divided in place."""

    NONE = "none"
    VIEW = "view"
    COPY = "copy"
    SUFFIX = "suffix"
    SCALED = "suffix, scaled"
    IN_PLACE = "suffix, scaled in place"

    @property
    def sampled(self) -> bool:
        """Whether the completions' logits alone are read."""
        return self in (Cut.SUFFIX, Cut.SCALED, Cut.IN_PLACE)

    @property
    def viewed(self) -> bool:
        """Whether what is read is a part of the model's own logits."""
        return self in (Cut.VIEW, Cut.SUFFIX, Cut.IN_PLACE)


class Likelihood(StrEnum):
    """A cross-entropy of the chosen sequences over a copy of their logits: none; a part of the loss, made first, or
    after the log-probabilities; so, over those of their tokens that count; made last, and let go of as the loss
    function returns."""

    NONE = "none"
    PART = "part"
    AFTER = "part, after"
    COUNTED = "part, after, counted"
    DROPPED = "dropped"


class Metric(StrEnum):
    """What is made of the logits without a graph, for a trainer's log most of it: nothing; those of tokens that count,
    chosen and rejected apart; entropies in chunks of the tokens, or sequence by sequence; sums of squares that weigh
    pairs; chosen and rejected sequences picked by their numbers, both at once; these, and then of each those that
    count; the rejected ones of all ranks."""

    NONE = "none"
    COUNTED = "counted"
    ENTROPY = "entropy"
    ENTROPY_ROWS = "entropy, by row"
    SQUARES = "squares"
    PICKED = "picked"
    PICKED_COUNTED = "picked, counted"
    GATHERED = "gathered"


class Before(StrEnum):
    """Logits of a pass over further sequences ahead of the one that is trained, or of the reference's own: gone at
    once; named until that one's log-probabilities are made; so, and their log-probabilities are made last."""

    GONE = "gone"
    KEPT = "kept"
    READ_LAST = "read last"


class Asked(StrEnum):
    """What the model is asked for besides logits: nothing; keys and values; hidden states of all layers."""

    NOTHING = "nothing"
    CACHE = "cache"
    HIDDEN = "hidden states"


class Outputs(StrEnum):
    """How long a model's outputs live, and keys and values with them: their logits are taken at once; until the pass's
    log-probabilities are made; until the loss function returns, which names them."""

    TAKEN = "taken"
    LOCAL = "local"
    NAMED = "named"


class Held(StrEnum):
    """What a loss function's names hold of a pass until it returns: logits; picked sequences; the rejected of these."""

    LOGITS = "logits"
    PICKED = "picked"
    REJECTED = "rejected"


@dataclass(frozen=True, slots=True)
class Reading:
    """How a loss function reads all logits. `names`: it holds the policy's and the reference's until it returns; what
    is made `within` every pass (picked sequences are held until it returns, too), and `last`, after all passes.
    `wide`: it casts them to fp32 itself; `kept`: it can be told that the head
    makes those of the tokens that count only; `frees`: the
    reference's log-probabilities come from a function of their own, which holds nothing as it returns."""

    picked: Picked
    cut: Cut = Cut.VIEW
    likelihood: Likelihood = Likelihood.NONE
    names: bool = False
    within: Metric = Metric.NONE
    last: tuple[Metric, ...] = ()
    before: Before = Before.GONE
    asked: Asked = Asked.NOTHING
    outputs: Outputs = Outputs.LOCAL
    wide: bool = False
    kept: bool = False
    frees: bool = False

    @property
    def told(self) -> Likelihood:
        """The cross-entropy where the loss is told to have one; of a kernel's results no other tensor is made, and a
        function that names its logits until it made the log reads those of tokens that count."""
        if self.likelihood is Likelihood.PART or self.picked is Picked.KERNEL:
            return self.likelihood
        return Likelihood.COUNTED if self.names and self.last else Likelihood.AFTER

    @property
    def of_policy(self) -> frozenset[Held]:
        """What is held of the policy's own pass."""
        return frozenset(
            ([Held.LOGITS] if self.names else []) + ([Held.PICKED] if self.within is Metric.PICKED else [])
        )

    @property
    def of_reference(self) -> frozenset[Held]:
        """What is held of the reference's pass: a function that returns picked sequences is called for it too, and one
        name is bound to its last two results."""
        if self.names or self.frees:
            return frozenset() if self.frees else frozenset({Held.LOGITS})
        return frozenset({Held.REJECTED} if self.within is Metric.PICKED else ())


@dataclass(frozen=True, slots=True)
class Preference:
    """A trainer's micro-batch of a task, from a release of its package on.

    Forward passes without gradients beside the one that is trained: sequences of the policy `before` it and of the
    reference model `after` it. `tensors`: of tokens that a micro-batch has; `results`: numbers of each token that a
    fused head hands on (0: it is not fused); `form`: how the loss is made, with its `reading` where it reads all
    logits.
    """

    package: str
    since: str
    task: str
    before: int
    after: int
    tensors: int
    results: int
    form: str
    source: Source
    reading: Reading | None = None

    @property
    def names(self) -> bool:
        """Whether the script's names keep logits until the next micro-batch's take their place, as a plain loop's do;
        a Trainer's end before backward. Such scripts bring a reference of their own, whatever is trained, too."""
        return self.package not in ON_TRANSFORMERS


@dataclass(frozen=True, slots=True)
class Prepared:
    """From which releases a package wraps a task's reference model where FSDP spreads the policy: by FSDP1, in the
    policy's own units; by FSDP2, in these or as one `unit`. Before, it stays where it was loaded."""

    package: str
    task: str
    first: str
    second: str
    unit: bool
    source: Source
