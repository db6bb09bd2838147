"""Keys of the plan that say which models act in reinforcement learning: each a role with what differs from the plan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, WithJsonSchema

from trainledger.facts.phases import ENGINE, PAGES
from trainledger.plan.names import Stored
from trainledger.plan.text import shown
from trainledger.plan.types import (
    Count,
    MicroBatchOrNull,
    Section,
    Share,
    Size,
    Text,
    optional,
    refusal,
)
from trainledger.plan.types import Sequence as Tokens

State = Literal["resident", "offloaded", "weights-offloaded", "optimizer-offloaded", "asleep"]
COLOCATED, IDLE = "colocated", "idle"


def _placement(value: object) -> str | int:
    if value == COLOCATED or (isinstance(value, int) and not isinstance(value, bool) and value > 0):
        return value
    raise refusal(shown(value), "colocated, or a number of devices of its own")


def _model(value: object) -> str | dict[str, Any]:
    if (isinstance(value, str) and value.strip()) or (isinstance(value, dict) and value):
        return value
    raise refusal(shown(value), "a model's name, a path to its config.json, or its keys in place")


def _level(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value in ENGINE.levels:
        return value
    raise refusal(shown(value), " or ".join(map(str, ENGINE.levels)))


Placement = Annotated[
    str | int,
    BeforeValidator(_placement),
    WithJsonSchema({"anyOf": [{"const": COLOCATED}, {"type": "integer", "minimum": 1}]}),
]
RoleModel = Annotated[
    str | dict[str, Any] | None,
    optional(_model),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "object"}, {"type": "null"}]}),
]
Level = Annotated[
    int | None, optional(_level), WithJsonSchema({"anyOf": [{"enum": list(ENGINE.levels)}, {"type": "null"}]})
]
Partial = dict[str, Any] | None


class Engine(Section):
    """A rollout engine's memory: a share of the device, or a cache for so many tokens."""

    memory_share: Share = Field(None, description="Its share of the device's memory, weights and cache in it.")
    tokens: Count = Field(None, description="Tokens that its cache holds, of all sequences together.")
    sequences: MicroBatchOrNull = Field(None, description="Sequences of the batch's length that it holds.")
    cache_dtype: Stored | None = Field(None, description="Element type of keys and values; null means the weights'.")
    page: Tokens = Field(PAGES.tokens, description="Tokens of one page of the cache.")
    overhead: Size = Field(None, description="Working memory and captured graphs, beside weights and cache.")
    sleep_level: Level = Field(None, description="1: asleep, weights are in the host's memory; 2: they are dropped.")
    bucket: Size = Field(None, description="Bytes of weights that an update sends at a time; null: one weight.")


class Role(Section):
    """A model that acts: keys of the plan that differ for it, where it lies, and in which phases."""

    model: RoleModel = Field(None, description="Its model, where it is not the plan's.")
    adapter: Partial = Field(None, description="Its adapter's keys.")
    quantization: Partial = Field(None, description="How its frozen weights are stored.")
    precision: Partial = Field(None, description="Its element types.")
    optimizer: Partial = Field(None, description="Its optimizer's keys.")
    batch: Partial = Field(None, description="Its batch's keys.")
    parallel: Partial = Field(None, description="Its strategy and degrees.")
    offload: Partial = Field(None, description="What of it leaves the device's memory.")
    stack: Partial = Field(None, description="Its software's keys.")
    placement: Placement = Field(COLOCATED, description="On the plan's devices, or on a number of its own.")
    states: dict[Text, State] = Field(
        default_factory=dict,
        description="By phase, or `idle` for all in which it does not act: resident, offloaded, asleep, or in part.",
    )
    forward_batch: MicroBatchOrNull = Field(None, description="Sequences of a silent forward; null: micro_batch.")
    engine: Engine | None = Field(None, description="A rollout engine's memory.")


class Roles(Section):
    """Who acts in an iteration of reinforcement learning."""

    policy: Role | None = Field(None, description="The model that is trained: the plan's own.")
    reference: Role | None = Field(None, description="The frozen model that the policy is held against.")
    critic: Role | None = Field(None, description="The trained model of values.")
    reward: Role | None = Field(None, description="The frozen model of rewards.")
    rollout: Role | None = Field(None, description="The engine that generates.")
    teacher: Role | None = Field(None, description="The frozen model that is distilled into the plan's.")

    def given(self) -> Iterator[tuple[str, Role]]:
        """The roles that there are, by name; the policy always is."""
        for name in type(self).model_fields:
            role = getattr(self, name)
            if role is not None or name == "policy":
                yield name, role or Role()

    def of(self, name: str) -> Role:
        """The role of this name; an empty one where there is none."""
        found = getattr(self, name)
        return found if isinstance(found, Role) else Role()
