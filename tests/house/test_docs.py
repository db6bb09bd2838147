"""The generated pages are not behind the tables, and the words' page has every word."""

from __future__ import annotations

import re

import pytest

from tests.house.rules import ROOT
from trainledger.show.sources import sources_by_title

SOURCES = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
WORDS = (ROOT / "docs" / "words.md").read_text(encoding="utf-8")


def test_every_source_is_listed() -> None:
    headings = set(re.findall(r"^## (.+)$", SOURCES, re.MULTILINE))
    missing = sorted(set(sources_by_title()) - headings)
    assert not missing, f"`make docs` writes docs/sources.md anew; it lacks {missing}"


def test_no_source_is_listed_that_no_table_names() -> None:
    headings = set(re.findall(r"^## (.+)$", SOURCES, re.MULTILINE))
    assert sorted(headings - set(sources_by_title())) == []


@pytest.mark.parametrize("word", ["rank", "role", "line", "moment", "shard", "transient", "resident", "basis", "place"])
def test_every_word_is_explained(word: str) -> None:
    assert re.search(rf"\*\*[^*]*\b{word}\b[^*]*\*\*", WORDS), word
