"""A search's state: what was estimated stays, a line that was cut off is dropped, nothing else is written over."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.answer.search_goals import small
from trainledger.answer.bands import Band
from trainledger.answer.search_exact import Exact
from trainledger.base.problems import InputError
from trainledger.importers.search_state import State, digest

ONE = Exact("fits", 10, Band(1, 2, 3), "step 2: backward", True)
TWO = Exact(None, 0, Band(0, 0, 0), "", False, "no such plan")


def held(path: Path) -> dict[str, Exact]:
    """What a state has."""
    with closing(State(str(path), small())) as state:
        return dict(state)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A state with two estimates, whose search was then stopped in the middle of a third line."""
    path = tmp_path / "state.jsonl"
    state = State(str(path), small())
    state["one"], state["two"] = ONE, TWO
    state.close()
    with path.open("a", encoding="utf-8") as file:
        file.write('{"key": "three", "exa')
    return path


def test_what_was_estimated_is_there_again(path: Path) -> None:
    state = State(str(path), small())
    assert dict(state) == {"one": ONE, "two": TWO}
    state["three"] = ONE
    state.close()
    assert held(path) == {"one": ONE, "two": TWO, "three": ONE}
    assert path.read_text(encoding="utf-8").count("\n") == 4


def test_the_state_of_another_search_is_not_written_over(path: Path) -> None:
    before = path.read_bytes()
    with pytest.raises(InputError, match="another search"):
        State(str(path), small("torchtitan"))
    assert path.read_bytes() == before
    with closing(State(str(path), small("torchtitan"), force=True)) as state:
        assert dict(state) == {}


@pytest.mark.parametrize("text", ["notes of mine\n", "{}\n", "no line's end"])
def test_a_file_of_something_else_is_not_written_over(tmp_path: Path, text: str) -> None:
    path = tmp_path / "notes.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="no state of a search"):
        State(str(path), small())
    assert path.read_text(encoding="utf-8") == text


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="--state"):
        State(str(tmp_path / "no" / "state"), small())


def test_the_mark_tells_goals_apart() -> None:
    assert digest(small()) == digest(small())
    assert len({digest(small()), digest(small("torchtitan")), digest(small(devices="4xrtx4090"))}) == 3
