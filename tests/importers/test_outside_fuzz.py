"""Whatever stands in a file, reading it ends in a draft or in problems, never in another error."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainledger.base.problems import InputError
from trainledger.facts.import_accelerate import ACCELERATE_KEYS
from trainledger.facts.import_deepspeed import DEEPSPEED_KEYS
from trainledger.facts.import_peft import ADAPTER_KEYS
from trainledger.importers.document import Document
from trainledger.importers.formats import FORMATS, Context, extract, recognised
from trainledger.importers.hf_run import ROWS, run_piece
from trainledger.importers.hf_settle import settle
from trainledger.importers.inputs import Input, parse_mapping
from trainledger.importers.loose_json import parse_loose_json
from trainledger.importers.outside import merged, read_any
from trainledger.importers.piece import Given, Piece
from trainledger.importers.script import parse_script
from trainledger.importers.toml_text import parse_toml

HERE = Path(__file__).parent
WORDS = [
    "auto",
    "true",
    "bf16",
    "1e400",
    "-1",
    "none",
    "cpu",
    "nvme",
    "FULL_SHARD",
    "[a",
    "{",
    "$X",
    "1:2",
    "all-linear",
]
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.sampled_from(WORDS))
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
PARTS = [*"ab1 \n\"'\\${}()[]@#;&|<>=-_:`+*/", "--bf16 ", "torchrun ", "<<E", "A=(", "$((", "${A", "2>&1", "export "]
SHELL = st.lists(st.sampled_from(PARTS), max_size=40).map("".join)
NAMED = {
    "TrainingArguments": [name for name in ROWS if "*" not in name],
    "DeepSpeed configuration": [row.name for row in DEEPSPEED_KEYS if "*" not in row.name],
    "accelerate configuration": [row.name for row in ACCELERATE_KEYS if "*" not in row.name],
    "adapter_config.json": [row.name for row in ADAPTER_KEYS],
    "model folder or config.json": "model_type quantization_config dtype text_config torch_dtype architectures".split(),
}


def nested(flat: dict[str, Any]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for name, value in flat.items():
        part: Any = data
        *outer, last = name.split(".")
        for key in outer:
            part = part.setdefault(key, {}) if isinstance(part.get(key, {}), dict) else {}
        part[last] = value
    return data


@given(text=SHELL)
def test_any_text_is_a_script(text: str) -> None:
    for command in parse_script(text, "x.sh", {}).commands:
        assert command.words


@given(text=st.text(max_size=80))
@pytest.mark.parametrize("read", [parse_loose_json, parse_toml, parse_mapping])
def test_any_text_is_data_or_a_problem(read: Any, text: str) -> None:
    with suppress(InputError):
        assert isinstance(read(text, "x"), Document)


@settings(max_examples=150)
@given(data=st.data())
@pytest.mark.parametrize("kind", NAMED)
def test_any_values_of_known_keys_are_read_or_refused(kind: str, data: st.DataObject) -> None:
    names = st.sampled_from(NAMED[kind]) | st.text(max_size=6)
    flat = data.draw(st.dictionaries(names, VALUES, max_size=6))
    document = Document(nested(flat), {(): "x"})
    given_ = Input("x", "", document=document)
    recognised(given_)
    with suppress(InputError):
        piece = extract(given_, kind, Context())
        last = settle([piece], {})
        pieces = [piece] if last is None else [piece, last]
        if not any(one.problems for one in pieces):
            assert isinstance(merged(pieces).data, dict)


@settings(max_examples=100)
@given(args=st.dictionaries(st.sampled_from(sorted(ROWS)), VALUES, max_size=5), trl=st.booleans())
def test_any_arguments_make_a_piece(args: dict[str, Any], trl: bool) -> None:
    piece = Piece("x", "x")
    run_piece(piece, {**{name: Given(value, name) for name, value in args.items()}, "_trl": Given(trl, "")}, Context())
    settle([piece], {"transformers": "4.40.0"})


@settings(max_examples=40)
@given(data=st.data())
@pytest.mark.parametrize("case", sorted(path.name for path in (HERE / "files" / "script").glob("[!_b]*.s*")))
def test_a_script_with_a_piece_cut_out_is_read_or_refused(case: str, data: st.DataObject) -> None:
    text = (HERE / "files" / "script" / case).read_text()
    at = data.draw(st.integers(0, len(text)))
    cut = (
        text[:at]
        + data.draw(st.sampled_from(["", '"', "$(", "{", "--fsdp", "\\", "&&"]))
        + text[at + data.draw(st.integers(0, 30)) :]
    )
    source = Input("x.sh", "", script=parse_script(cut, "x.sh", {}))
    if recognised(source):
        extract(source, recognised(source), Context())


def test_a_pickle_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "training_args.bin"
    path.write_bytes(b"\x80\x04cos\nsystem\n")
    with pytest.raises(InputError, match="a pickle, which runs code"):
        read_any([str(path)])


@pytest.mark.parametrize(
    "text", ["", "null", "[]", "{}", "3", '"x"', "\0", "a: b", json.dumps({"zero_optimization": None})]
)
@pytest.mark.parametrize("name", ["x.json", "x.yaml", "x.toml", "x.sh", "x"])
def test_what_is_no_run_is_refused(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError):
        read_any([str(path)])


def test_a_folder_that_is_not_there_is_no_format() -> None:
    assert FORMATS
    assert recognised(Input("x", "nowhere")) == ""
