"""Published configurations multiply to their devices, and name models of the catalogue."""

from __future__ import annotations

import pytest

from trainledger.facts.catalogue import find_model
from trainledger.facts.search_recipes import PUBLISHED, Published


@pytest.mark.parametrize("row", PUBLISHED, ids=lambda row: f"{row.models[0]}-{row.devices}-{row.degrees.get('pp', 1)}")
def test_a_published_run_is_whole(row: Published) -> None:
    inner = row.degrees.get("tp", 1) * row.degrees.get("cp", 1) * row.degrees.get("pp", 1)
    replicas, rest = divmod(row.devices, inner)
    assert rest == 0
    assert row.global_batch % (replicas * row.degrees["micro_batch"]) == 0
    for name in row.models:
        assert find_model(name).keys()["model_type"]
