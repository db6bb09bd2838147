"""PyTorch's functional collectives: from which release on the parts of one sequence are seen in place."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Views:
    """From this release on a gather along the second dim is a view where the first has one entry."""

    since: str
    source: Source


VIEWS = Views("2.11", Source("PyTorch", "torch/_utils.py, _maybe_view_chunk_cat (#169404)", "2.11"))
