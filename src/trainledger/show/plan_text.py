"""A draft as a plan in YAML, with a comment for every key that says where it came from."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from trainledger.plan.schema import Plan, as_mapping
from trainledger.show.document import Origin
from trainledger.show.doubts import unknown

INDENT = "  "


def plan_text(plan: Plan, draft: Origin) -> str:
    """The plan, key by key; what was given, what a default of which release is, what is derived."""
    origins = {one.path: f"given: {one.where}" for one in draft.used if one.where}
    origins |= {one.path: f"default: {one.why} ({one.source})" for one in draft.defaulted}
    head = [f"# {name}: {found}" for name, found in draft.formats]
    head += [f"# {unknown(one)}" for one in draft.unknown]
    head += [f"# not counted: {one.path} ({one.where}): {one.direction}" for one in draft.uncounted]
    return "\n".join([*head, *_lines(as_mapping(plan), (), origins)])


def _lines(data: Mapping[str, Any], path: tuple[str, ...], origins: Mapping[str, str]) -> Iterator[str]:
    pad = "".join(INDENT for _ in path)
    for key, value in data.items():
        here = (*path, key)
        origin = origins.get(".".join(here), "")
        comment = f"  # {origin}" if origin else ""
        if isinstance(value, dict) and value:
            yield f"{pad}{scalar(key)}:{comment}"
            yield from _lines(value, here, origins)
        else:
            yield f"{pad}{scalar(key)}: {scalar(value)}{comment}"


def scalar(value: Any) -> str:
    """A value on one line of YAML."""
    text = yaml.safe_dump(value, default_flow_style=True, width=sys.maxsize, allow_unicode=True)
    return text.removesuffix("\n").removesuffix("\n...").strip()
