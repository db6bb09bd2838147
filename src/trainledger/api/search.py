"""`trainledger.search`: a model or a plan and devices in, the fastest plans that fit out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.answer.search import search as answer_of
from trainledger.answer.search_answer import Answer, How, Progress
from trainledger.answer.search_goal import goal_of, plain
from trainledger.api.given import Given, paths_of
from trainledger.importers.search_jobs import running
from trainledger.importers.search_template import filled, template_of
from trainledger.show.html import html
from trainledger.show.search import document, sections, short
from trainledger.show.table import plain as text


@dataclass(frozen=True, slots=True, repr=False)
class SearchResult:
    """A search. `answer` is the whole of it; the methods are what the command line prints."""

    answer: Answer

    @property
    def plans(self) -> tuple[dict[str, Any], ...]:
        """The plans that fit, from the fastest on, as `trainledger.estimate` takes them."""
        return tuple(plain(self.answer.goal, one.candidate) for one in self.answer.ranked)

    def to_dict(self) -> dict[str, Any]:
        """What `trainledger search --json` prints."""
        return document(self.answer)

    def __str__(self) -> str:
        return "\n\n".join(text(one) for one in sections(self.answer) if one.text or one.rows)

    def __repr__(self) -> str:
        best = self.answer.ranked[0] if self.answer.ranked else None
        shown = "none fits" if best is None else f"{best.step:.3f} s, {short(best)}"
        return f"<SearchResult: {self.answer.counts.candidates:,} plans, {shown}>"

    def _repr_html_(self) -> str:
        return html(sections(self.answer))


def search(plan: Given, devices: str, **how: Any) -> SearchResult:
    """The fastest legal plans of a model on devices (`64xh100-80gb`) that fit, by estimated step time.

    `plan`: a model's name, a file, a run's files, or keys. `how`: `global_batch`, `sequence`, `framework`, `top` and
    `limit` as the command line has them; `jobs`, `backend`, `cluster`: estimates at once; `solve`: whether a solver
    chooses stages (needs highspy); `report`: a function that is told of the progress. Raises InputError with every
    problem.
    """
    framework, batch, sequence = how.pop("framework", ""), how.pop("global_batch", None), how.pop("sequence", None)
    report: Callable[[Progress], None] | None = how.pop("report", None)
    jobs, backend, cluster = how.pop("jobs", 1), how.pop("backend", "loky"), how.pop("cluster", "")
    solve, wanted = how.pop("solve", False), {name: how.pop(name) for name in ("top", "limit") if name in how}
    if how:
        raise TypeError(f"search() got an unexpected keyword argument {next(iter(how))!r}")
    template = filled(dict(plan)) if isinstance(plan, Mapping) else template_of(paths_of(plan), (), framework, devices)
    goal = goal_of(template, devices, batch, sequence)
    from trainledger.answer.search_refine import refined

    with running(jobs, backend, cluster) as run:
        made = How(run=run, report=report, refine=refined if solve else None, together=jobs, **wanted)
        return SearchResult(answer_of(goal, made))
