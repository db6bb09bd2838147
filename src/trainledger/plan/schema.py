"""The whole plan, and the JSON Schema that describes it."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, WithJsonSchema

from trainledger.facts.option_nulls import null_taken
from trainledger.facts.options import OPTION_MAPS, Kind, find_option, option_names
from trainledger.plan.acting import Roles
from trainledger.plan.beyond import Evaluation, Lengths, Node, Save
from trainledger.plan.names import Task
from trainledger.plan.running import Batch, Device, Offload, Parallel, Stack
from trainledger.plan.text import shown
from trainledger.plan.training import Adapter, Optimizer, Precision, Quantization
from trainledger.plan.types import Section, Trainable, refusal

NULL_MEANS_LEFT_OUT = (
    ("precision",), ("optimizer",), ("parallel",), ("offload",), ("stack",), ("stack", "attention"),
    ("stack", "recompute"), ("stack", "loss"), ("stack", "compile"), ("parallel", "shard"), ("adapter", "options"),
    ("optimizer", "options"), ("offload", "places"), ("parallel", "options"), ("stack", "options"), ("stack", "env"),
    ("stack", "allocator"), ("stack", "versions"), ("stack", "kernels"), ("optimizer", "states"),
    ("batch", "global"),
)  # fmt: skip


def _model(value: object) -> str | dict[str, Any]:
    if isinstance(value, str) and value.strip():
        return value
    if isinstance(value, dict) and value:
        return value
    raise refusal(shown(value), "a model's name, a path to its config.json, or its keys in place")


Model = Annotated[
    str | dict[str, Any],
    BeforeValidator(_model),
    WithJsonSchema({"anyOf": [{"type": "string", "minLength": 1}, {"type": "object", "minProperties": 1}]}),
]


class Plan(Section):
    """What is trained, and how. Keys that were left out are those not in `model_fields_set`."""

    model: Model = Field(description="A catalogue name, a path to config.json, a Hub id, or keys in place.")
    task: Task = Field("sft", description="What the training is for.")
    adapter: Adapter | None = Field(None, description="Trained weights beside a frozen model; null means none.")
    quantization: Quantization | None = Field(
        None, description="How frozen weights are stored; null means as they are."
    )
    trainable: Trainable = Field(
        "all", description="all, none, or patterns of names of the modules that are trained: mlp, model.layers.31."
    )
    precision: Precision = Field(default_factory=Precision, description="Element types.")
    optimizer: Optimizer = Field(default_factory=Optimizer, description="The optimizer.")
    batch: Batch = Field(description="The batch of one forward and of one step.")
    parallel: Parallel = Field(default_factory=Parallel, description="The strategy and the degrees.")
    offload: Offload = Field(default_factory=Offload, description="What leaves the device's memory.")
    stack: Stack = Field(default_factory=Stack, description="The software.")
    device: Device | None = Field(None, description="The device of every rank; null means no verdict is asked for.")
    roles: Roles | None = Field(None, description="Who acts beside the policy in reinforcement learning.")
    node: Node | None = Field(None, description="The machine that ranks share; null means no host budget is asked for.")
    save: Save | None = Field(None, description="What is written to disk, and how; null means the framework's own way.")
    evaluation: Evaluation | None = Field(None, description="Evaluation between steps; null means there is none.")
    lengths: Lengths | None = Field(None, description="How long samples are, where they differ.")

    def keys(self) -> dict[str, Any]:
        """The model's keys as they were given. Raises TypeError when `model` is still a name or a path."""
        if isinstance(self.model, str):
            raise TypeError("the model's name has not been resolved to its keys yet")
        return self.model


def as_mapping(plan: Plan) -> dict[str, Any]:
    """The plan as plain data (YAML and JSON alike): only the keys that were given, under the format's names."""
    return plan.model_dump(mode="json", by_alias=True, exclude_unset=True)


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of a plan: every key with its meaning, every free map with the names it may hold."""
    schema = Plan.model_json_schema(by_alias=True)
    parts = {"": schema, **schema["$defs"]}
    for part in parts.values():
        for prop in part.get("properties", {}).values():
            prop.pop("default", None)
    for path in NULL_MEANS_LEFT_OUT:
        _allow_null(_property(schema, path))
    for name, bare in (
        ("device", {"type": "string", "minLength": 1}),
        ("node", {"type": "string", "minLength": 1}),
        ("lengths", {"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"type": "integer"}}]}),
        ("recompute", {"enum": ["none", "full", "selective"]}),
    ):
        prop = _property(schema, ("stack", name) if name == "recompute" else (name,))
        prop["anyOf"] = [bare, *(prop.pop("anyOf", None) or [{"$ref": prop.pop("$ref")}])]
    for place in OPTION_MAPS:
        section, key = place.split(".")
        _property(schema, (section, key)).update(_option_schema(place))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Training plan"}


def _property(schema: dict[str, Any], path: tuple[str, ...]) -> dict[str, Any]:
    part = schema
    for key in path[:-1]:
        part = schema["$defs"][key.capitalize()]
    found: dict[str, Any] = part["properties"][path[-1]]
    return found


def _allow_null(prop: dict[str, Any]) -> None:
    if "anyOf" in prop:
        prop["anyOf"] = [*prop["anyOf"], {"type": "null"}]
    elif "$ref" in prop:
        prop["anyOf"] = [{"$ref": prop.pop("$ref")}, {"type": "null"}]
    elif "enum" in prop:
        prop["enum"] = [*prop["enum"], None]
        prop.pop("type", None)
    else:
        prop["type"] = [prop["type"], "null"]


_KIND_SCHEMA: dict[Kind, dict[str, Any]] = {
    Kind.BOOL: {"type": "boolean"},
    Kind.COUNT: {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
    Kind.NUMBER: {"type": "number"},
    Kind.TEXT: {"type": "string"},
    Kind.TEXTS: {"type": "array", "items": {"type": "string"}},
    Kind.AUTO: {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string"}]},
    Kind.COUNTS: {"type": "array", "items": {"type": "integer", "minimum": 0}},
    Kind.ANY: {},
}


def _mapping(null: bool) -> dict[str, Any]:
    return {"type": ["object", "null"] if null else "object", "properties": {}, "additionalProperties": False}


def _option_schema(place: str) -> dict[str, Any]:
    top: dict[str, Any] = {"properties": {}, "additionalProperties": False}
    for name in option_names(place):
        row = find_option(place, name)
        if row is None:
            continue
        part, inside = top, ""
        *outer, last = name.split(".")
        for key in outer:
            inside = f"{inside}.{key}" if inside else key
            part = part["properties"].setdefault(key, _mapping(null_taken(place, inside)))
        effect = f"{row.effect}; {row.direction}" if row.direction else str(row.effect)
        kind = dict(_KIND_SCHEMA[row.kind])
        if kind and null_taken(place, name):
            _allow_null(kind)
        part["properties"][last] = {**kind, "description": f"Memory effect: {effect}. {row.source}"}
    return top
