"""What else is wrong with a plan's degrees where they do not multiply to its world: told with that, not after it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainledger.base.problems import InputError, Problem

if TYPE_CHECKING:
    from trainledger.importers.document import Document

WORLD = ("parallel.world", "parallel.ep")  # keys whose problem is that ranks do not multiply, or do not hold experts
OF_WORLD = ("parallel.options.num_distributed_optimizer_instances", "parallel.shard")  # and those that follow from it


def degrees_too(data: Any, keys: dict[str, Any], problems: Iterable[Problem], document: Document) -> list[Problem]:
    """Problems of the degrees with the model and the batch, as if the world were as large as they ask for. None where
    other keys are wrong, too."""
    found = list(problems)
    if not found or not keys or not isinstance(data, dict) or any(one.path not in WORLD for one in found):
        return []
    from trainledger.answer.check_mesh import mesh_problems
    from trainledger.plan.read import read_plan
    from trainledger.plan.resolve import resolve

    parallel = {name: value for name, value in data["parallel"].items() if name not in ("world", "dp", "shard")}
    spread = [value for name in ("ep", "etp") if isinstance(value := parallel.get(name), int)]
    ranks = 1
    for value in spread:
        ranks *= value
    try:
        plan = read_plan({**data, "parallel": {**parallel, "dp": ranks}})
        resolved, _ = resolve(plan.model_copy(update={"model": keys}))
        more = mesh_problems(resolved)
    except InputError:
        return []
    kept = (one for one in more if one.path not in OF_WORLD)
    return [one if one.where else replace(one, where=document.where(tuple(one.path.split(".")))) for one in kept]
