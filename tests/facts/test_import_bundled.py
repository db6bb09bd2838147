"""The tables of the front ends' keys: each name once, and defaults of arguments that the Trainer has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest

from trainledger.facts.import_axolotl import AXOLOTL_FILLED, AXOLOTL_KEYS
from trainledger.facts.import_bundled import AXOLOTL_BUNDLED, LLAMAFACTORY_BUNDLED, SWIFT_BUNDLED, Bundled
from trainledger.facts.import_deepspeed import DEEPSPEED_KEYS
from trainledger.facts.import_llamafactory import LLAMAFACTORY_FILLED, LLAMAFACTORY_KEYS
from trainledger.facts.import_rows import FilledRow, KeyRow
from trainledger.facts.import_swift import SWIFT_FILLED, SWIFT_KEYS
from trainledger.importers.hf_run import ROWS


@pytest.mark.parametrize("rows", [AXOLOTL_KEYS, LLAMAFACTORY_KEYS, SWIFT_KEYS])
def test_every_key_has_one_row(rows: Sequence[KeyRow]) -> None:
    assert [name for name, times in Counter(row.name for row in rows).items() if times > 1] == []


@pytest.mark.parametrize("rows", [AXOLOTL_FILLED, LLAMAFACTORY_FILLED, SWIFT_FILLED])
def test_defaults_are_of_arguments_that_the_trainer_has(rows: Sequence[FilledRow]) -> None:
    assert {row.path for row in rows} - set(ROWS) - {"fsdp_version"} == set()


@pytest.mark.parametrize("rows", [AXOLOTL_BUNDLED, LLAMAFACTORY_BUNDLED, SWIFT_BUNDLED])
def test_settings_that_are_carried_have_deepspeeds_keys(rows: Sequence[Bundled]) -> None:
    known = {row.name for row in DEEPSPEED_KEYS}
    for row in rows:
        for name, value in row.data["zero_optimization"].items():
            inner = [f"{name}.{part}" for part in value] if isinstance(value, dict) else [name]
            assert {f"zero_optimization.{one}" for one in inner} <= known
