"""Plans from files and standard input: bad input gives a list of problems, never a traceback."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from trainledger.base.problems import InputError
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.plan_file import draft_of, parse_document, read_draft
from trainledger.plan.schema import as_mapping

PLAN = """
model: {model_type: llama, hidden_size: 8}
batch:
  micro_batch: 2
  sequence: 4096
"""


def draft(text: str | bytes, *sets: str) -> Draft:
    return read_draft("-", sets, io.BytesIO(text.encode() if isinstance(text, str) else text))


def refused(text: str | bytes, *sets: str) -> str:
    with pytest.raises(InputError) as caught:
        draft(text, *sets)
    return str(caught.value)


def test_a_plan_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN)
    read = read_draft(str(path))
    assert read.plan.keys() == {"model_type": "llama", "hidden_size": 8}
    used = {one.path: one.where for one in read.used}
    assert used["batch.sequence"] == f"{path}:5"
    assert any(default.path == "optimizer.implementation" for default in read.defaulted)
    assert read.ignored == ()


def test_yaml_and_json_round_trip() -> None:
    plan = draft(PLAN, "parallel.world=8", "optimizer.grad_clip=null").plan
    data = as_mapping(plan)
    assert draft(json.dumps(data)).plan == plan
    assert draft(json.dumps(data, indent="\t")).plan == plan
    assert draft(yaml.safe_dump(data)).plan == plan


def test_problems_carry_their_line() -> None:
    text = refused(PLAN + "precision:\n  wieghts: bf16\n")
    assert "<stdin>:7: precision.wieghts: unknown key" in text
    assert "Did you mean weights?" in text


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "empty"),
        ("# only a comment\n", "empty"),
        ("[1, 2]", "a list of 2"),
        ("- a\n- b\n", "a list of 2"),
        ("just words", '"just words"'),
        ("a: [1\nb: 2", "<stdin>:2: input: broken YAML"),
        ("a: 1\na: 2\n", "given twice (first at <stdin>:1)"),
        ('{"a": 1, "a": 2}', "given twice"),
        ("a: &x [*x]\n", "alias"),
        ("[" * 5000, "nest"),
        ('{"a":' * 5000, "nest"),
        ("a: !!python/object:os.system x\n", "tag"),
        ("? [a]\n: 1\n", "no text"),
        ("<<: {a: 1}\n", "merge key"),
        ("a: 1\n---\nb: 2\n", "second document"),
        ("a: \x01", "broken YAML"),
        (b"\xff\xfe", "UTF-8"),
        ("model_type: llama\nhidden_size: 5\n", "model: path/to/config.json"),
    ],
)
def test_broken_texts_are_refused_in_words(text: str | bytes, words: str) -> None:
    assert words in refused(text)


def test_aliases_that_explode_are_bounded() -> None:
    lines = ["a: &a [x,x,x,x,x,x,x,x,x,x]"]
    for before, name in zip("abcdefgh", "bcdefghi", strict=True):
        lines.append(f"{name}: &{name} [{','.join([f'*{before}'] * 10)}]")
    started = time.perf_counter()
    assert "too many values" in refused("\n".join(lines))
    assert time.perf_counter() - started < 10


def test_a_large_file_is_refused_at_once(tmp_path: Path) -> None:
    path = tmp_path / "large.yaml"
    with path.open("wb") as stream:
        stream.truncate(100 * 10**6)
    started = time.perf_counter()
    with pytest.raises(InputError, match="too large"):
        read_draft(str(path))
    assert time.perf_counter() - started < 1


def test_missing_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").write_text(PLAN)
    with pytest.raises(InputError, match=r"no such file.*plan\.yaml\?"):
        read_draft(str(tmp_path / "plan.yml"))
    with pytest.raises(InputError, match="a folder"):
        read_draft(str(tmp_path))
    with pytest.raises(InputError):
        read_draft("a\0b")


def test_scalars_mean_what_users_expect() -> None:
    data = parse_document("a: 8e9\nb: 12:30\nc: 2024-01-01\nd: no\ne: 0x10\nf: 012\ng: '8'\nh: ~\ni: .5\n", "x").data
    assert data == {
        "a": 8e9,
        "b": "12:30",
        "c": "2024-01-01",
        "d": False,
        "e": 16,
        "f": "012",
        "g": "8",
        "h": None,
        "i": 0.5,
    }


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60) | st.text(max_size=60).map(lambda text: text.encode("utf-8", "replace")))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    with pytest.raises(InputError):
        draft(raw)


json_like = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(json_like)
def test_json_is_read_as_json_reads_it(data: object) -> None:
    assert parse_document(json.dumps(data), "x.json").data == data


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.text(max_size=6), json_like, max_size=4))
def test_any_mapping_is_a_draft_or_refused(data: dict[str, object]) -> None:
    with pytest.raises(InputError):
        draft_of(Document(data, {}))
