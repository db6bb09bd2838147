"""A search as text and as plain data: the plans that fit, the front, published runs, where the time goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from trainledger.answer.search_answer import Answer, Found, Progress, Recipe, assumptions
from trainledger.answer.search_goal import plain
from trainledger.answer.search_recipes import why
from trainledger.base.units import format_size
from trainledger.facts.roofline import WORDS
from trainledger.plan.yaml_text import yaml_lines
from trainledger.show.plan_text import scalar
from trainledger.show.table import Section

PARTS = {
    "compute": "kernels", "again": "recompute", "tensor": "tensor-parallel exchanges",
    "context": "context-parallel exchanges", "experts": "expert exchanges", "sharding": "gathers of sharded weights",
    "host": "activations to the host and back", "bubble": "pipeline bubble", "passed": "sendings between stages",
    "replicas": "gradients of replicas",
    "update": "optimizer step",
}  # fmt: skip
DEGREES = ("tp", "cp", "pp", "vpp", "ep", "etp")
TIMED = ("#", "s/step", "tokens/s/device", "device", "high end")
SPREAD = (*DEGREES, "dp", "micro")
HEAD = (*TIMED, "by", "strategy", *SPREAD, "recompute", "stages")
RIGHT = tuple(HEAD.index(name) for name in (*TIMED, *SPREAD))

REPLAY, LEDGER = "replay", "ledger"
STOPPED = "None of the plans that were estimated fits, and the limit ended the search: --limit raises it."
NONE_FITS = (
    "No plan fits. Use more devices, larger ones, or a smaller batch; `trainledger advise` says what a plan gains."
)


def sections(answer: Answer, units: str = "GiB") -> tuple[Section, ...]:
    """The counts, the plans that fit, the front, published runs, the first plan's time, what is assumed."""
    return (
        Section(title(answer), tuple(_counted(answer))),
        _plans("Fastest plans that fit", answer, answer.ranked, units, _nothing(answer)),
        _plans("Memory against time: each holds less than every faster one", answer, answer.front, units),
        *(_recipe(one, answer, units) for one in answer.recipes),
        _time(answer),
        Section(f"Times are an {WORDS.label}, and assume", tuple(f"  {line}" for line in assumptions())),
    )


def _nothing(answer: Answer) -> tuple[str, ...]:
    """What is said where nothing fits."""
    if answer.ranked:
        return ()
    return (STOPPED if answer.counts.stopped else NONE_FITS,)


def title(answer: Answer) -> str:
    """What was asked."""
    goal = answer.goal
    name = str(goal.keys.get("name") or goal.keys.get("model_type"))
    batch = f"{goal.global_batch:,} sequences of {goal.sequence:,} tokens a step"
    return f"{name} on {goal.devices:,} x {goal.device.name} with {goal.framework}: {batch}"


def _counted(answer: Answer) -> Iterator[str]:
    counts = answer.counts
    yield f"{counts.candidates:,} legal plans ({counts.refused:,} meshes refused by the plan's own checks)"
    yield f"{counts.never:,} do not fit by a lower bound; {counts.out:,} more are tight at best by it"
    ledger = (
        f"{counts.exact:,} were estimated: those with `{LEDGER}` by the ledger, with `{REPLAY}` by the allocator too"
    )
    yield f"{ledger}; all others are slower than the plans shown, or ruled out"
    if counts.stopped:
        yield "the limit of exact estimates ended the search: --limit raises it"


def _plans(name: str, answer: Answer, plans: tuple[Found, ...], units: str, text: tuple[str, ...] = ()) -> Section:
    rows = tuple(row(one, at, answer, units) for at, one in enumerate(plans, 1))
    return Section(name if rows or text else "", text, HEAD if rows else (), rows, RIGHT, (0,) if rows else ())


def row(one: Found, at: int, answer: Answer, units: str) -> tuple[str, ...]:
    """A plan's cells."""
    candidate, exact = one.candidate, one.exact
    degrees = candidate.degrees()
    stages = candidate.layout or ("even" if candidate.pp > 1 else "")
    again = candidate.policy.name + (f" {candidate.layers}" if candidate.layers else "")
    return (
        str(at), f"{one.step:.3f}", f"{one.speed:,.0f}", format_size(exact.device.expected, units),
        format_size(exact.device.high, units), REPLAY if exact.replayed else LEDGER, _strategy(one),
        *(str(degrees[name]) for name in DEGREES), str(one.replicas), str(candidate.micro_batch), again,
        f"{stages} ({one.solved})" if one.solved else stages,
    )  # fmt: skip


def _strategy(one: Found) -> str:
    shard = one.candidate.shard
    return f"{one.candidate.strategy} over {shard}" if shard else one.candidate.strategy


def _recipe(one: Recipe, answer: Answer, units: str) -> Section:
    published = one.published
    degrees = " ".join(f"{name} {value}" for name, value in published.degrees.items())
    measured = f"{published.speed:,} tokens/s/device were measured"
    name = f"Published: {degrees} ({published.source.title})"
    found = one.found
    if found is None:
        return Section(name, (f"  no candidate of this search; {measured}",))
    lines = [
        f"  {found.step:.3f} s a step, {found.speed:,.0f} tokens/s/device estimated; {measured}",
        f"  {found.faster:,} of {one.of:,} plans that are not ruled out are faster ({one.share:.1%})",
        f"  verdict {found.exact.outcome} with {found.candidate.policy.name}, device"
        f" {format_size(found.exact.device.expected, units)} to {format_size(found.exact.device.high, units)}",
        *(f"  {line}" for line in one.differs),
    ]
    if answer.ranked and found.row != answer.ranked[0].row:
        lines += [f"  than the first: {line}" for line in why(answer.ranked[0], found, PARTS)]
    return Section(name, tuple(lines))


def _time(answer: Answer) -> Section:
    if not answer.ranked:
        return Section("")
    first = answer.ranked[0]
    rows = tuple((PARTS[name], f"{seconds:.3f}") for name, seconds in first.times.items() if seconds)
    return Section("Where the first plan's step goes, in seconds", (), ("part", "s"), rows, (1,))


def progress_line(found: Progress) -> str:
    """One line for a terminal while the search runs."""
    best = found.best
    shown = "none fits yet" if best is None else f"best {best.step:.3f} s, {short(best)}"
    return f"{found.candidates:,} plans, {found.left:,} not ruled out, {found.exact:,} estimated; {shown}"


def short(one: Found) -> str:
    """A plan in few words."""
    degrees = " ".join(f"{name} {value}" for name, value in one.candidate.degrees().items() if value > 1)
    return f"{one.candidate.strategy} {degrees} recompute {one.candidate.policy.name}".replace("  ", " ")


def document(answer: Answer) -> dict[str, Any]:
    """The search as JSON values: seconds, bytes, plans in full."""
    goal = answer.goal
    return {
        "goal": {
            "model": dict(goal.keys), "framework": goal.framework, "devices": goal.devices, "device": goal.device.name,
            "global_batch": goal.global_batch, "sequence": goal.sequence,
        },
        "counts": asdict(answer.counts),
        "time": {"label": WORDS.label, "assumptions": list(assumptions())},
        "ranked": [_found(one, answer) for one in answer.ranked],
        "front": [_found(one, answer) for one in answer.front],
        "recipes": [_published(one, answer) for one in answer.recipes],
    }  # fmt: skip


def _found(one: Found, answer: Answer) -> dict[str, Any]:
    return {
        "step": one.step, "tokens_per_second_per_device": one.speed, "parts": one.times, "faster": one.faster,
        "strategy": one.candidate.strategy, "degrees": {**one.candidate.degrees(), "dp": one.replicas},
        "recompute": one.candidate.policy.name, "stages": one.candidate.layout, "solved": one.solved,
        "estimate": asdict(one.exact), "plan": plain(answer.goal, one.candidate),
    }  # fmt: skip


def _published(one: Recipe, answer: Answer) -> dict[str, Any]:
    found = None if one.found is None else _found(one.found, answer)
    gaps = why(answer.ranked[0], one.found, PARTS) if answer.ranked and one.found else ()
    return {
        "degrees": dict(one.published.degrees), "measured": one.published.speed, "source": str(one.published.source),
        "found": found, "of": one.of, "share": one.share, "differs": list(one.differs), "than_first": list(gaps),
    }  # fmt: skip


def plan_lines(answer: Answer) -> str:
    """The first plan as a plan's file in YAML. Raises IndexError where none fits."""
    data = plain(answer.goal, answer.ranked[0].candidate)
    return "\n".join(yaml_lines(data, scalar, {}))
