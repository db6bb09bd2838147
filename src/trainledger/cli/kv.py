"""`trainledger kv`: bytes of keys and values that an engine caches for each token of a model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from trainledger.base.problems import InputError, Problem
from trainledger.base.units import SHOWN_UNITS, format_size
from trainledger.facts.phases import PAGES

if TYPE_CHECKING:
    from trainledger.answer.cache import CacheAnswer, LayerRow

MODEL_HELP = "A catalogue name, a path to config.json or its folder, a Hub id, a plan, or a run's own file."
HEADER = ("layers", "elements of a token", "bytes", "window", "what")
_NUMBERS = [HEADER.index(name) for name in ("layers", "elements of a token", "bytes", "window")]


def kv(
    model: Annotated[str, typer.Argument(metavar="MODEL", help=MODEL_HELP)],
    dtype: Annotated[str, typer.Option("--dtype", help="Element type of keys and values.")] = "bf16",
    tokens: Annotated[int, typer.Option("--tokens", help="Tokens of one sequence, to size its pages.")] = 0,
    page: Annotated[int, typer.Option("--page", help="Tokens of one page of the cache.")] = PAGES.tokens,
    tp: Annotated[
        int,
        typer.Option("--tp", help="Ranks that share the key-value heads; above their number, each head has copies."),
    ] = 1,
    units: Annotated[str, typer.Option("--units", help="The unit of a sequence's size.")] = "GiB",
    as_json: Annotated[bool, typer.Option("--json", help="Print for programs: sizes in bytes.")] = False,
) -> None:
    """Bytes that a rollout engine caches for each token of a model, layer by layer.

    Key-value heads count as the model groups them, a latent (MLA) once for all heads, a window only its last tokens.
    Linear attention caches a state of each sequence, which does not grow with it.
    """
    from trainledger.answer.cache import cache_answer
    from trainledger.importers.outside import model_keys_of

    if units not in SHOWN_UNITS:
        raise InputError([Problem("--units", f"{units!r}", f"allowed are {', '.join(SHOWN_UNITS)}")])
    answer = cache_answer(model_keys_of(model), dtype, tokens, page, tp)
    typer.echo(json.dumps(asdict(answer), indent=1) if as_json else _text(model, answer, units))


def _text(model: str, answer: CacheAnswer, units: str) -> str:
    from trainledger.show.listing import columns

    rank = f" on each of {answer.tp} ranks" if answer.tp > 1 else ""
    lines = [f"{model}: {answer.per_token:,} B a token in {answer.dtype}{rank}"]
    if answer.length:
        size = format_size(answer.sequence, units)
        lines.append(f"{size} for a sequence of {answer.length:,} tokens, in pages of {answer.page}")
    rows = [
        (
            f"{one.layers:,}", f"{one.elements:,}", f"{one.bytes:,}", f"{one.window:,}" if one.window else "",
            _what(one),
        )
        for one in answer.rows
    ]  # fmt: skip
    return "\n".join((*lines, *_shared(answer), "", columns(HEADER, rows, right=_NUMBERS)))


def _what(one: LayerRow) -> str:
    if one.state:
        return f"a state of {one.state:,} B for each sequence, however long"
    return "a latent of all heads" if one.latent else "keys and values by head"


def _shared(answer: CacheAnswer) -> Iterator[str]:
    """What more ranks do not split further."""
    for latent, copies, heads in dict.fromkeys(
        (one.latent, one.copies, one.heads) for one in answer.rows if not one.state
    ):
        if copies > 1 and latent:
            yield f"the latent is one for all heads: each of the {copies} ranks caches it whole"
        elif copies > 1:
            yield f"{heads} key-value heads on {answer.tp} ranks: each head is cached on {copies} ranks, in copies"
