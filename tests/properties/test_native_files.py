"""Files of torchtune, torchtitan and LitGPT, bent and cut at random: each gives a draft or says what is wrong."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.importers.native import FORMATS, cases, ids
from trainledger.base.problems import InputError
from trainledger.facts import import_litgpt, import_torchtitan, import_torchtune
from trainledger.facts.import_rows import KeyRow, Means
from trainledger.importers import litgpt, torchtitan, torchtune
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.outside import merged, read_any
from trainledger.importers.piece import Piece
from trainledger.importers.plan_file import draft_of
from trainledger.importers.script import parse_script

ALL = [path for name in FORMATS for path in cases(name)]
KEYS: dict[str, tuple[KeyRow, ...]] = {
    "torchtune": import_torchtune.KEYS,
    "torchtitan": import_torchtitan.KEYS,
    "litgpt": import_litgpt.KEYS,
}
MODULES = {"torchtune": torchtune, "torchtitan": torchtitan, "litgpt": litgpt}

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 70_000), st.floats(), st.text(max_size=12),
    st.sampled_from(["bf16", "auto", "$X", "${model}", "op", "8B", "torch.optim.AdamW", "torchtune.x.llama3_8b"]),
)  # fmt: skip
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3)
)


def placed(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Mappings of the format's own keys to anything, each where it stands."""
    known = [row.name.replace("*", "x") for row in KEYS[name] if row.means is Means.READ]
    return st.lists(st.tuples(st.sampled_from(known), VALUES), max_size=14).map(nested)


def nested(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for dotted, value in pairs:
        *outer, last = dotted.split(".")
        part = data
        for key in outer:
            inner = part.get(key)
            part[key] = part = inner if isinstance(inner, dict) else {}
        part[last] = value
    return data


def pieced(name: str, given_: Input) -> None:
    """The importer gives a piece, and the piece a draft; or either says what is wrong."""
    problems: Sequence[object] = ("none so far",)
    try:
        piece = MODULES[name].extract(given_, Context())
        assert isinstance(piece, Piece)
        if not piece.problems:
            draft_of(merged([piece]))
    except InputError as error:
        problems = error.problems
    assert problems


@pytest.mark.parametrize("name", FORMATS)
def test_any_mapping_gives_a_piece_or_problems(name: str) -> None:
    @settings(max_examples=150, deadline=None)
    @given(placed(name))
    def check(data: dict[str, Any]) -> None:
        given_ = Input("x.yaml", "", Document(data, {}))
        assert 0 <= MODULES[name].identify(given_) <= 1
        pieced(name, given_)

    check()


@pytest.mark.parametrize("name", FORMATS)
def test_any_broken_line_gives_a_piece_or_problems(name: str) -> None:
    texts = [path.read_text(encoding="utf-8") for path in cases(name) if path.suffix in (".sh", ".slurm")]

    @settings(max_examples=150, deadline=None)
    @given(st.sampled_from(texts), st.randoms(use_true_random=False))
    def check(text: str, chance: random.Random) -> None:
        words = text.split(" ")
        for _ in range(chance.randint(1, 4)):
            at = chance.randrange(len(words))
            words[at] = chance.choice(["", "--", "--x", "$Q", "=", "a=b", "--a.b=", words[at][:3], words[at] * 2])
        given_ = Input("x.sh", str(cases(name)[0].parent), script=parse_script(" ".join(words), "x.sh", {}))
        if MODULES[name].identify(given_):
            pieced(name, given_)

    check()


@pytest.mark.parametrize("path", ALL, ids=ids(ALL))
def test_a_file_cut_off_anywhere_gives_a_draft_or_problems(path: Path, tmp_path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for part in range(1, 12):
        cut = tmp_path / path.name
        cut.write_text(text[: len(text) * part // 12], encoding="utf-8")
        with suppress(InputError):
            assert read_any([str(cut)]).formats
