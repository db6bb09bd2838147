"""Arbitrary files of a format: its own keys with any values, and command lines of any words."""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hypothesis import strategies as st

from trainledger.base.problems import InputError
from trainledger.facts.import_rows import Means
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.piece import Piece
from trainledger.importers.script import parse_script

WORDS = st.sampled_from(
    [
        "auto",
        "lora",
        "qlora",
        "full",
        "freeze",
        "sft",
        "dpo",
        "zero3",
        "true",
        "4",
        "0",
        "-1",
        "1e9",
        "",
        "{",
        "[a",
        "all",
    ]
)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-3, 10**20), st.floats(), WORDS, st.text(max_size=8))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)


def mappings(rows: Sequence[Any], fixed: dict[str, Any]) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings of the keys that a format's importer reads, and some that it does not have, to anything."""
    names = st.sampled_from(_read(rows)) | st.sampled_from(_read(rows)) | st.text(max_size=8)
    return st.dictionaries(names, VALUES, max_size=8).map(lambda data: {**fixed, **data})


def scripts(rows: Sequence[Any], start: str) -> st.SearchStrategy[str]:
    """Command lines of the keys that a format's importer reads, and any words."""
    flags = st.sampled_from([f"--{name}" for name in _read(rows)])
    other = st.text(max_size=6) | st.sampled_from(["$X", "$(expr 4 / 0)", "$((8 / $N))"])
    words = st.lists(flags | flags | WORDS | other, max_size=10)
    return words.map(lambda parts: f"N=2\n{start} {' '.join(parts)}")


def _read(rows: Sequence[Any]) -> list[str]:
    return sorted({row.name.partition(".")[0] for row in rows if row.means is Means.READ})


def read(module: ModuleType, data: Any) -> Piece | None:
    """What a format's importer makes of a mapping or a script's text; None where it refuses."""
    if isinstance(data, str):
        given = Input("run.sh", "", script=parse_script(data, "run.sh", {}))
        if not module.identify(given):
            return None
    else:
        given = Input("run.yml", "", document=Document(data, {(): "run.yml"}))
    assert 0 <= module.identify(given) <= 1
    try:
        piece: Piece = module.extract(given, Context())
    except InputError:
        return None
    return piece
