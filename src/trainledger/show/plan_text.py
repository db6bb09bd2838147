"""A draft as a plan in YAML, with a comment for every key that says where it came from."""

from __future__ import annotations

import sys
from typing import Any

import yaml

from trainledger.plan.schema import Plan, as_mapping
from trainledger.plan.yaml_text import yaml_lines
from trainledger.show.document import Origin
from trainledger.show.doubts import unknown


def plan_text(plan: Plan, draft: Origin) -> str:
    """The plan, key by key; what was given, what a default of which release is, what is derived."""
    origins = {one.path: f"given: {one.where}" for one in draft.used if one.where}
    origins |= {one.path: f"default: {one.why} ({one.source})" for one in draft.defaulted}
    head = [f"# {name}: {found}" for name, found in draft.formats]
    head += [f"# {unknown(one)}" for one in draft.unknown]
    head += [f"# not counted: {one.path} ({one.where}): {one.direction}" for one in draft.uncounted]
    return "\n".join([*head, *yaml_lines(as_mapping(plan), scalar, origins)])


def scalar(value: Any) -> str:
    """A value on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=sys.maxsize, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()
