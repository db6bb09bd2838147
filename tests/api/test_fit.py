"""`trainledger.fit`: the command line's limits as a result."""

from __future__ import annotations

import json

import trainledger
from tests.answer.test_fit import BASE


def test_fit() -> None:
    result = trainledger.fit(BASE, ["micro-batch"], batch__sequence=256)
    assert result.to_dict()["limits"][0]["value"] == result.values["micro-batch"]
    assert f"micro-batch {result.values['micro-batch']}" in repr(result)
    assert "<table>" in result._repr_html_()
    assert "Limits" in str(result)
    json.dumps(result.to_dict())
    more = trainledger.fit(BASE, "sequence", "reserved=100MiB,batch.micro_batch=1", frontier=True, batch__sequence=256)
    assert list(more.values) == ["sequence"]
    assert more.answer.frontier
    assert more.answer.unexplained is not None
