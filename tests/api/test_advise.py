"""`trainledger.advise`: the command line's advice as a result."""

from __future__ import annotations

import json

import trainledger
from tests.answer.test_advise import BASE


def test_advise() -> None:
    result = trainledger.advise(BASE, combine=1, batch__sequence=512)
    best = result.answer.best
    assert best[0].taken.name in repr(result)
    assert result.to_dict()["best"][0]["moves"] == [best[0].taken.name]
    assert result.lines(best[0])
    assert "<table>" in result._repr_html_()
    assert "What to change" in str(result)
    json.dumps(result.to_dict())
