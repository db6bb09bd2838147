"""`trainledger schema`: the JSON Schema of a plan."""

from __future__ import annotations

import json

import typer

from trainledger.plan.schema import json_schema


def schema(
    compact: bool = typer.Option(False, "--compact", help="On one line."),
) -> None:
    """The JSON Schema of a plan, for an editor's completion or for a program that writes plans."""
    typer.echo(json.dumps(json_schema(), separators=(",", ":")) if compact else json.dumps(json_schema(), indent=1))
