"""`trainledger schema`: the JSON Schema of a plan."""

from __future__ import annotations

import json

import typer

from trainledger.plan.schema import json_schema


def schema(
    compact: bool = typer.Option(False, "--compact", help="On one line."),
    as_json: bool = typer.Option(False, "--json", help="As every verb's: the schema is JSON in any case."),
) -> None:
    """The JSON Schema of a plan, for an editor's completion or for a program that writes plans."""
    typer.echo(json.dumps(json_schema(), separators=(",", ":")) if compact else json.dumps(json_schema(), indent=1))
