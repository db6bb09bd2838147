"""`trainledger.export`: a plan in, the files of a framework out."""

from __future__ import annotations

from typing import Any

from trainledger.api.given import Given, draft_from
from trainledger.importers.export import Exported
from trainledger.importers.export import export as exported


def export(plan: Given, to: str, **sets: Any) -> Exported:
    """A plan as the files of `to`: deepspeed, accelerate, axolotl, llama-factory, torchtune, torchtitan, megatron, trl.

    `plan`: its keys as a mapping, the path of a file, or the paths of a run's own files. `sets` changes keys, two
    underscores for each dot. The result has `files` (names and texts), `unsaid` (keys of the plan that the files do not
    say, and what they come to) and `to_dict()`. Raises InputError with every problem, and with every key of the plan
    without which the files would be another run.
    """
    return exported(draft_from(plan, sets), to)
