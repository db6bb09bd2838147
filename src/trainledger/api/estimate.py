"""`trainledger.estimate`: a plan in, a result out."""

from __future__ import annotations

from typing import Any

from trainledger.answer.estimate import estimate as answer_of
from trainledger.api.given import Given, draft_from
from trainledger.api.result import Result


def estimate(plan: Given, **sets: Any) -> Result:
    """The estimate of a plan: its keys as a mapping, the path of a file, or the paths of a run's own files together.

    `sets` changes keys, two underscores for each dot: `batch__micro_batch=2`. Raises InputError with every problem.
    """
    draft = draft_from(plan, sets)
    return Result(answer_of(draft.plan), draft)
