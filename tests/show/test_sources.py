"""The page of sources lists what the tables name."""

from __future__ import annotations

from trainledger.base.sources import Source
from trainledger.facts.dtypes import DTYPES
from trainledger.show.sources import reachable, sources_by_title, sources_markdown


def test_every_dtype_s_source_is_found() -> None:
    found = sources_by_title()
    for row in DTYPES.values():
        assert "dtypes" in {table for tables in found[row.source.title].values() for table in tables}


def test_the_page_has_one_section_a_source() -> None:
    page = sources_markdown()
    assert page.startswith("# Sources\n")
    for title, places in sources_by_title().items():
        assert page.count(f"\n## {title}\n") == 1
        assert all(f"- {place} — " in page for place in places)


def test_sources_are_found_at_any_depth() -> None:
    source = Source("A paper", "table 1")
    assert source in list(reachable({"a": [(source,)], "b": {1}}))
    assert list(reachable("A paper")) == []
