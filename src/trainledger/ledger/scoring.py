"""What a run's loss is made of, and what its trainer's names hold of it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainledger.facts.losses import CHUNKED_HEAD
from trainledger.facts.preference_row import FUSED, READ, Held, Likelihood, Metric, Preference, Reading
from trainledger.facts.preferences import (
    AHEAD,
    CHOSEN_SHARE,
    LIKELIHOOD,
    LOSSES,
    REWARDED,
    SUFFIX,
    TOLD,
    WEIGHS,
    preference_of,
)
from trainledger.facts.supervised import SCALED, SMOOTHED, SMOOTHS, TASK, Shows, scaled_of, shown_of
from trainledger.facts.versions import at_least
from trainledger.ledger.software import LIGER
from trainledger.plan.schema import Plan

RUNS, WHOLE = "transformers", ("full-fp32", "full")  # where TRL's trainers run; losses over all logits
LOGITS = "logits"  # a forward that ends with these


@dataclass(frozen=True, slots=True)
class Scoring:
    """What the loss is made of: the plan's word for it, or the task whose trainer makes it of all logits, and in which
    form (empty: as the plan says); tokens of each sequence that count (0: all that have a next one); numbers of each
    token that a fused head hands on. Where a loss function reads all logits: how, what its names hold until it
    returns, whether the trainer's log is made at the end of this pass, and of how many ranks' logits; and of how many
    last tokens of each sequence the head makes logits (0: all). `shows`: what a supervised trainer's log takes of the
    logits after the loss; `weighs`: pairs are weighed by sums of squared probabilities, in every pass unless the
    function names its logits."""

    loss: str
    form: str = ""
    counted: int = 0
    results: int = CHUNKED_HEAD.results
    reading: Reading | None = None
    held: frozenset[Held] = frozenset()
    logs: bool = True
    ranks: int = 1
    kept: int = 0
    shows: Shows | None = None
    weighs: bool = False

    @property
    def last(self) -> tuple[Metric, ...]:
        """What is made of the logits after all passes, where they are read whole."""
        if self.reading is None:
            return ()
        return ((Metric.SQUARES,) if self.weighs and self.reading.names else ()) + self.reading.last

    @property
    def of_reference(self) -> Scoring:
        """The same for the reference's pass, of whose named logits no sequences are picked."""
        reading = self.reading
        if reading is None:
            return self
        within = Metric.NONE if reading.names else reading.within
        return replace(self, reading=replace(reading, within=within), held=reading.of_reference, logs=False)

    @property
    def of_further(self) -> Scoring:
        """The same for a pass over further sequences."""
        if self.reading is None:
            return self
        return replace(
            self, reading=replace(self.reading, within=Metric.NONE), held=frozenset({Held.LOGITS}), logs=False
        )


def trainer_of(plan: Plan) -> Preference | None:
    """The row of the trainer that runs a plan's task over preferences; None where none is known."""
    return preference_of(plan.task, plan.stack.framework, plan.stack.versions)


def ahead_of(plan: Plan, row: Preference) -> bool:
    """Whether a reference's log-probabilities are computed before training."""
    return bool(plan.stack.options.get(AHEAD)) and not row.names


def scoring_of(plan: Plan) -> Scoring:
    """The loss of a plan."""
    row, counted = trainer_of(plan), plan.batch.loss_tokens or 0
    if plan.task == REWARDED:  # of rewards nothing is fused
        return Scoring("full")
    if row is None:
        reading, shows = _supervised(plan), _shows(plan)
        if reading is None:
            return Scoring(plan.stack.loss, counted=counted, shows=shows)
        return Scoring(WHOLE[-1], READ, counted, reading=reading, shows=shows)
    if row.form == FUSED:
        weights = 1 if plan.stack.options.get(WEIGHS) else 0
        return Scoring(plan.stack.loss, counted=counted, results=row.results + weights)
    if row.reading is None:
        return Scoring(plan.task, row.form, counted)
    inside = bool(row.after) and not ahead_of(plan, row)
    reading = _weighed(plan, row.reading)
    return Scoring(
        plan.task,
        row.form,
        counted,
        reading=reading,
        held=reading.of_policy if inside else frozenset(),
        logs=not inside,
        ranks=plan.parallel.world,
        kept=_kept(plan, reading),
        weighs=bool(plan.stack.options.get(WEIGHS)),
    )


def _supervised(plan: Plan) -> Reading | None:
    """How a Trainer reads all logits for a loss of its own: smoothed labels whatever is fused, since it hands no labels
    to the model; TRL's scaled loss where Liger's kernels do not make it. Ranks that share a sequence make the model's
    own."""
    stack = plan.stack
    if stack.framework != RUNS or plan.parallel.cp > 1:
        return None
    if stack.options.get(SMOOTHS):
        return SMOOTHED.reading
    scaled = plan.task == TASK and SCALED in (stack.options.get(LOSSES) or ()) and stack.loss in WHOLE
    row = scaled_of(stack.versions) if scaled and LIGER not in stack.kernels else None
    return row.reading if row is not None else None


def _shows(plan: Plan) -> Shows | None:
    """What TRL's supervised trainer makes of all logits, which Liger's kernels keep from it; ranks that share a
    sequence are handed labels that are moved already, and it copies nothing."""
    stack, alone = plan.stack, plan.parallel.cp == 1
    whole = stack.loss in WHOLE and LIGER not in stack.kernels
    return shown_of(stack.versions) if plan.task == TASK and stack.framework == RUNS and whole and alone else None


def _kept(plan: Plan, reading: Reading) -> int:
    """The tokens that count and the one before, where the head is told to make their logits only."""
    counted = plan.batch.loss_tokens or 0
    asked = reading.kept and plan.stack.options.get(SUFFIX)
    if reading.cut.sampled:
        asked = at_least(plan.stack.versions.get("transformers"), TOLD)
    return min(counted + 1, plan.batch.sequence) if counted and asked else 0


def _weighed(plan: Plan, reading: Reading) -> Reading:
    """The reading with the cross-entropy of the chosen that its weight asks for, or a loss of its name."""
    options = plan.stack.options
    if LIKELIHOOD in (options.get(LOSSES) or ()):
        return replace(reading, likelihood=reading.told)
    weight = next((options[one] for one in CHOSEN_SHARE if one in options), None)
    if weight is None:
        return reading
    return replace(reading, likelihood=reading.told if weight else Likelihood.NONE)
