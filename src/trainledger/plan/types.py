"""The value types of the plan's keys: how a count, a size or a name is read, and how JSON Schema describes it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, StrictBool, StrictStr, WithJsonSchema
from pydantic_core import PydanticCustomError

from trainledger.base.problems import nearest
from trainledger.base.units import parse_count, parse_size
from trainledger.facts.limits import (
    ACCUMULATION,
    DEGREE,
    GLOBAL_BATCH,
    GROUP,
    MICRO_BATCH,
    PARAMETERS,
    RANK,
    SAVES,
    SEQUENCE,
    Limit,
)
from trainledger.facts.names import FRAMEWORKS, KERNELS, LATER_OPTIMIZERS
from trainledger.facts.optimizers import OPTIMIZERS
from trainledger.plan.text import shown


class Section(BaseModel):
    """A part of the plan: frozen, and closed to keys that it does not name."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=False, protected_namespaces=())


def refusal(found: str, allowed: str, fix: str = "") -> PydanticCustomError:
    """The error of a value, in the words of base.problems.Problem."""
    return PydanticCustomError("plan", "{found}; {allowed}", {"found": found, "allowed": allowed, "fix": fix})


def whole(value: object, least: int, most: int, unit: str) -> int:
    """A whole number between `least` and `most` from a number or a text such as `7B`.

    Raises PydanticCustomError (which read_plan turns into a Problem) for anything else.
    """
    allowed = f"a whole number of {unit} from {least:,} to {most:,}"
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refusal(shown(value), allowed)
    try:
        if isinstance(value, str) and value.strip().replace("_", "").lstrip("+-").replace(".", "", 1).isdigit():
            value = float(value) if "." in value else int(value)
        if isinstance(value, float) and not value.is_integer():
            raise refusal(shown(value), allowed)
        count = parse_count(value)
    except (ValueError, OverflowError):
        raise refusal(shown(value), allowed) from None
    if not least <= count <= most:
        raise refusal(shown(value), allowed)
    return count


def _whole(limit: Limit, least: int = 1) -> Callable[[object], int]:
    return lambda value: whole(value, least, limit.value, limit.unit)


def _group(value: object) -> int:
    """Weights of a group; -1: all inputs of an output, as checkpoints say it."""
    return -1 if value == -1 else whole(value, 1, GROUP.value, GROUP.unit)


def _size(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise refusal(shown(value), "a size such as 80GB, 80 GiB or a number of bytes")
    try:
        size = parse_size(value)
    except (ValueError, OverflowError):
        raise refusal(shown(value), "a size such as 80GB, 80 GiB or a number of bytes, below 2^63") from None
    if size < 1:
        raise refusal(shown(value), "a size above 0")
    return size


def _real(least: float, most: float) -> Callable[[object], float]:
    def read(value: object) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise refusal(shown(value), f"a number from {least:g} to {most:g}")
        if not least <= value <= most:
            raise refusal(shown(value), f"a number from {least:g} to {most:g}")
        return float(value)

    return read


def _expert_load(value: object) -> float | str:
    if isinstance(value, str) and value in ("mean", "worst"):
        return 1.0 if value == "mean" else value
    if isinstance(value, bool) or not isinstance(value, int | float) or not 1 <= value < math.inf:
        raise refusal(shown(value), "mean, worst, or a factor of the mean of 1 or more")
    return float(value)


def _named(names: tuple[str, ...]) -> Callable[[object], str]:
    def read(value: object) -> str:
        if isinstance(value, str) and value in names:
            return value
        near = nearest(value, names) if isinstance(value, str) else ""
        raise refusal(shown(value), "one of " + ", ".join(names), f"Did you mean {near}?" if near else "")

    return read


def _texts_or(*words: str) -> Callable[[object], str | tuple[str, ...]]:
    def read(value: object) -> str | tuple[str, ...]:
        if isinstance(value, str) and value and (value in words or not words):
            return value
        if isinstance(value, list | tuple) and value and all(isinstance(item, str) and item for item in value):
            return tuple(value)
        raise refusal(shown(value), f"{' or '.join((*words, 'a list of names'))}")

    return read


def _compile(value: object) -> bool | str:
    if isinstance(value, bool) or value == "blocks":
        return bool(value) if isinstance(value, bool) else "blocks"
    raise refusal(shown(value), "true, false or blocks")


def _bool_or_degree(value: object) -> bool | int:
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return whole(value, 1, DEGREE.value, DEGREE.unit)
    raise refusal(shown(value), "true, false or a number of ranks")


def optional(read: Callable[[object], Any]) -> BeforeValidator:
    """A reader of a value that may be null."""
    return BeforeValidator(lambda value: None if value is None else read(value))


_COUNT_SCHEMA = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}
_COUNT_OR_NULL = {"anyOf": [*_COUNT_SCHEMA["anyOf"], {"type": "null"}]}
_GROUP_OR_NULL = {"anyOf": [{"const": -1}, *_COUNT_OR_NULL["anyOf"]]}
_SIZE_OR_NULL = {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"type": "string"}, {"type": "null"}]}
_OPTIMIZERS = (*OPTIMIZERS, *(name for name in LATER_OPTIMIZERS.names if name not in OPTIMIZERS))
_TEXTS = {"type": "array", "items": {"type": "string"}, "minItems": 1}

MicroBatch = Annotated[int, BeforeValidator(_whole(MICRO_BATCH)), WithJsonSchema(_COUNT_SCHEMA)]
MicroBatchOrNull = Annotated[int | None, optional(_whole(MICRO_BATCH)), WithJsonSchema(_COUNT_OR_NULL)]
Sequence = Annotated[int, BeforeValidator(_whole(SEQUENCE)), WithJsonSchema(_COUNT_SCHEMA)]
LossTokens = Annotated[int | None, optional(_whole(SEQUENCE)), WithJsonSchema(_COUNT_OR_NULL)]
Accumulation = Annotated[int, BeforeValidator(_whole(ACCUMULATION)), WithJsonSchema(_COUNT_SCHEMA)]
GlobalBatch = Annotated[int | None, optional(_whole(GLOBAL_BATCH)), WithJsonSchema(_COUNT_OR_NULL)]
SavesOrNull = Annotated[int | None, optional(_whole(SAVES)), WithJsonSchema(_COUNT_OR_NULL)]
CountOrNull = Annotated[int | None, optional(_whole(ACCUMULATION)), WithJsonSchema(_COUNT_OR_NULL)]
Degree = Annotated[int, BeforeValidator(_whole(DEGREE)), WithJsonSchema(_COUNT_SCHEMA)]
DegreeOrNull = Annotated[int | None, optional(_whole(DEGREE)), WithJsonSchema(_COUNT_OR_NULL)]
AdapterRank = Annotated[int | None, optional(_whole(RANK)), WithJsonSchema(_COUNT_OR_NULL)]
Layers = Annotated[int | None, optional(_whole(RANK)), WithJsonSchema(_COUNT_OR_NULL)]
GroupSize = Annotated[int | None, optional(_group), WithJsonSchema(_GROUP_OR_NULL)]
Parameters = Annotated[int | None, optional(_whole(PARAMETERS, 0)), WithJsonSchema(_COUNT_OR_NULL)]
Count = Annotated[int | None, optional(_whole(PARAMETERS)), WithJsonSchema(_COUNT_OR_NULL)]
Share = Annotated[
    float | None,
    optional(_real(0, 1)),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0, "maximum": 1}, {"type": "null"}]}),
]
Size = Annotated[int | None, optional(_size), WithJsonSchema(_SIZE_OR_NULL)]
Dropout = Annotated[float, BeforeValidator(_real(0, 1)), WithJsonSchema({"type": "number", "minimum": 0, "maximum": 1})]
Norm = Annotated[
    float | None,
    optional(_real(0, math.inf)),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]}),
]
ExpertLoad = Annotated[
    float | str,
    BeforeValidator(_expert_load),
    WithJsonSchema({"anyOf": [{"enum": ["mean", "worst"]}, {"type": "number", "minimum": 1}]}),
]
OptimizerName = Annotated[str, BeforeValidator(_named(_OPTIMIZERS)), WithJsonSchema({"enum": list(_OPTIMIZERS)})]
Framework = Annotated[str, BeforeValidator(_named(FRAMEWORKS.names)), WithJsonSchema({"enum": list(FRAMEWORKS.names)})]
Kernel = Annotated[str, BeforeValidator(_named(KERNELS.names)), WithJsonSchema({"enum": list(KERNELS.names)})]
Targets = Annotated[
    str | tuple[str, ...] | None,
    optional(_texts_or()),
    WithJsonSchema({"anyOf": [{"type": "string"}, _TEXTS, {"type": "null"}]}),
]
Trainable = Annotated[
    str | tuple[str, ...],
    BeforeValidator(_texts_or("all", "none")),
    WithJsonSchema({"anyOf": [{"enum": ["all", "none"]}, _TEXTS]}),
]
Compile = Annotated[
    bool | Literal["blocks"], BeforeValidator(_compile), WithJsonSchema({"enum": [True, False, "blocks"]})
]
BoolOrDegree = Annotated[
    bool | int,
    BeforeValidator(_bool_or_degree),
    WithJsonSchema({"anyOf": [{"type": "boolean"}, {"type": "integer", "minimum": 1}]}),
]
Text = StrictStr
Bool = StrictBool
