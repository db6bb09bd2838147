"""The plan at one length of its samples: the longest's, the median's."""

from __future__ import annotations

from statistics import median_low, quantiles

from trainledger.base.problems import InputError, Problem
from trainledger.facts.preferences import PAIRED, REWARDED
from trainledger.plan.beyond import Lengths
from trainledger.plan.schema import Plan

MEDIAN, NINETY, LONGEST = "median", "9 of 10 samples", "longest"
HALVES = ("front", "back")  # of a context-parallel rank's part
TENTHS = len("0123456789")


def kept(plan: Plan) -> tuple[int, ...]:
    """The lengths that the plan lists, without those that are dropped because they are longer than its sequence. Raises
    InputError where that leaves none."""
    given, sequence = plan.lengths, plan.batch.sequence
    if given is None or given.longer == "cut" or not given.values:
        return given.values if given else ()
    found = tuple(tokens for tokens in given.values if tokens <= sequence)
    if not found:
        said = f"no sample is left: the shortest has {min(given.values):,} tokens, batch.sequence is {sequence:,}"
        raise InputError((Problem("lengths", said, "a longer batch.sequence, or longer: cut"),))
    return found


def lengths_of(plan: Plan) -> dict[str, int]:
    """Tokens of the sample in the middle, of that which nine of ten do not exceed, and of the longest, as far as they
    are known. Raises InputError as `kept` does."""
    given = plan.lengths
    if given is None:
        return {}
    values = sorted(kept(plan))
    found: dict[str, int] = {}
    middle = given.median or (median_low(values) if values else None)
    longest = given.longest or (values[-1] if values else None)
    if middle is not None:
        found[MEDIAN] = middle
    if values[1:]:
        found[NINETY] = round(quantiles(values, n=TENTHS, method="inclusive")[-1])
    if longest is not None:
        found[LONGEST] = longest
    return found


def differ(plan: Plan, tokens: int) -> bool:
    """Whether the plan knows of samples that are shorter than so many tokens."""
    found = lengths_of(plan)
    return MEDIAN in found and min(kept(plan), default=found[MEDIAN]) < min(tokens, plan.batch.sequence)


def several(plan: Plan) -> bool:
    """Whether a micro-batch has more than one row; a pair has two."""
    return plan.batch.micro_batch > 1 or plan.task in (*PAIRED, REWARDED)


def pads(plan: Plan) -> bool:
    """Whether rows of a micro-batch hold padding: as the plan says, or where several are made of samples that differ.
    Raises InputError as `kept` does."""
    given = plan.lengths
    if given is None or given.packing != "none":
        return False
    if given.padded is not None:
        return given.padded
    return several(plan) and differ(plan, given.longest or max(kept(plan), default=plan.batch.sequence))


def alone(plan: Plan, tokens: int) -> Plan:
    """The plan where every sample has so many tokens, which says no more of lengths than whether rows are padded."""
    lengths = Lengths(padded=True) if pads(plan) else None
    return at_length(plan, tokens).model_copy(update={"lengths": lengths})


def at_length(plan: Plan, tokens: int) -> Plan:
    """The plan where every sample has so many tokens, cut at the plan's own sequence: padded rows, or one row of all
    samples end to end. Packed rows are full whatever samples are like."""
    given, batch = plan.lengths, plan.batch
    if given is None or given.packing == "packed":
        return plan
    pieces, evaluation = _pieces(plan), plan.evaluation
    each = min(-(-tokens // pieces) * pieces, batch.sequence)
    if given.packing != "padding-free":
        return plan.model_copy(update={"batch": batch.model_copy(update={"sequence": each})})
    if evaluation is not None:
        rows, longest = evaluation.micro_batch or batch.micro_batch, min(tokens, evaluation.sequence or batch.sequence)
        evaluation = evaluation.model_copy(update={"micro_batch": 1, "sequence": rows * longest})
    return end_to_end(plan, each * batch.micro_batch).model_copy(update={"evaluation": evaluation})


def end_to_end(plan: Plan, tokens: int) -> Plan:
    """The plan with one row of so many tokens: a micro-batch's samples end to end."""
    return plan.model_copy(update={"batch": plan.batch.model_copy(update={"micro_batch": 1, "sequence": tokens})})


def _pieces(plan: Plan) -> int:
    """What a sequence is padded to a multiple of: the halves of each context-parallel rank's part, and the parts of
    sequence parallelism within tensor parallelism."""
    parallel = plan.parallel
    halves = parallel.cp * len(HALVES) if parallel.cp > 1 else 1
    return halves * (parallel.tp if parallel.sp else 1)


def at_longest(plan: Plan) -> Plan:
    """The plan at its longest sample, where it says how long samples are."""
    found = lengths_of(plan)
    return at_length(plan, found[LONGEST]) if LONGEST in found else plan
