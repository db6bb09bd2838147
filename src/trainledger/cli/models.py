"""`trainledger models`: the catalogue of models that a plan can name."""

from __future__ import annotations

import json

import typer

from trainledger.base.problems import InputError, Problem
from trainledger.base.units import format_count
from trainledger.facts.catalogue import Entry
from trainledger.facts.catalogue import search as search_catalogue
from trainledger.show.listing import columns

HEADER = ("name", "parameters", "exactly", "model_type", "date", "Hub id")
_NUMBERS = [HEADER.index(name) for name in ("parameters", "exactly")]


def models(
    search: str = typer.Option(
        "", "--search", "-s", help="Only those in whose name, Hub id or type every word occurs."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print for programs, with the keys of each model."),
) -> None:
    """The models a plan can name, with their exact parameter counts.

    A count has tied weights once. Any other model of a known type can stand in the plan as a path to its
    config.json, or as its keys.
    """
    found = search_catalogue(search)
    if not found:
        raise InputError([Problem("--search", f"no model matches {search!r}", "leave it out to list all")])
    if as_json:
        typer.echo(json.dumps({"models": [_as_data(entry) for entry in found]}, indent=1))
    else:
        typer.echo(columns(HEADER, [_row(entry) for entry in found], right=_NUMBERS))


def _row(entry: Entry) -> tuple[str, ...]:
    about = "" if entry.parameters is None else format_count(entry.parameters)
    exactly = "not published" if entry.parameters is None else f"{entry.parameters:,}"
    return entry.name, about, exactly, str(entry.keys()["model_type"]), entry.source.date, entry.hub_id


def _as_data(entry: Entry) -> dict[str, object]:
    source = {"title": entry.source.title, "where": entry.source.where, "date": entry.source.date}
    return {
        "name": entry.name, "hub_id": entry.hub_id, "parameters": entry.parameters, "config": entry.keys(),
        "source": source,
    }  # fmt: skip
