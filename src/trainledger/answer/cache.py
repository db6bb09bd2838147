"""How many bytes a rollout engine caches for a token, and for a sequence of a length."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.base.demands import Demand, divides, problems_of
from trainledger.base.problems import InputError, Problem
from trainledger.facts.dtypes import BF16, DTYPES
from trainledger.facts.phases import PAGES
from trainledger.model.build import build
from trainledger.model.kv import Cache, Cached, cached

CACHED = ("fp32", "bf16", "fp16", "fp8", "int8")  # element types that engines keep keys and values in


@dataclass(frozen=True, slots=True)
class LayerRow:
    """Equal layers: how many, what each caches of a token on one rank (elements, bytes), tokens that a window keeps
    (0: all), `latent`: of all heads together, `heads`: key-value heads (0: a latent), `copies`: how many ranks cache
    the same of them, `state`: bytes of one sequence's state on one rank, which its length does not change."""

    layers: int
    elements: int
    bytes: int
    window: int
    latent: bool
    heads: int
    copies: int
    state: int


@dataclass(frozen=True, slots=True)
class CacheAnswer:
    """Bytes of a token in all layers on one rank; of one sequence of `length` tokens (0: none was asked for), in whole
    pages; by kind of layer."""

    dtype: str
    page: int
    tp: int
    per_token: int
    length: int
    sequence: int
    rows: tuple[LayerRow, ...]


def cache_answer(
    keys: Mapping[str, Any], dtype: str = BF16.name, length: int = 0, page: int = PAGES.tokens, tp: int = 1
) -> CacheAnswer:
    """The cache of the model with these keys. Raises InputError for a model, element type or number that has none."""
    problems = []
    if dtype not in CACHED:
        problems.append(Problem("--dtype", f"found {dtype!r}", f"one of {', '.join(CACHED)} is needed"))
    for name, value, least in (("--page", page, 1), ("--tp", tp, 1), ("--tokens", length, 0)):
        if value < least:
            problems.append(Problem(name, f"found {value}", f"{least} or more is needed"))
    if problems:
        raise InputError(problems)
    found = Cache(cached(build(keys)), DTYPES[dtype], page, tp)
    problems.extend(problems_of(demand for one in found.layers for demand in _splits(one, tp)))
    if problems:
        raise InputError(dict.fromkeys(problems))
    rows = tuple(
        LayerRow(
            one.layers, one.elements(tp), found.dtype.bytes_of(one.elements(tp)), one.window, not one.heads,
            one.heads, one.copies(tp), found.dtype.bytes_of(one.kept(tp)),
        )
        for one in found.layers
    )  # fmt: skip
    return CacheAnswer(dtype, page, tp, found.per_token, length, found.sequence(length), rows)


def _splits(layers: Cached, tp: int) -> Iterator[Demand]:
    """How engines spread heads: those of queries evenly; of keys and values so many on each rank, or each on as many
    ranks. Source: `PAGES`."""
    yield divides("--tp", tp, layers.queries, "the heads of queries")
    if heads := layers.heads:
        yield Demand(
            "--tp",
            tp,
            f"{tp} ranks cannot share {heads} key-value heads evenly",
            f"a divisor or a multiple of {heads} is needed",
            lambda n: heads % n == 0 or n % heads == 0,
        )
