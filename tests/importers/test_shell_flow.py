"""Branches of scripts whose conditions are known, texts that `read` takes, the script's own arguments."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainledger.importers.script import parse_script


def variable(text: str, name: str = "X", **env: str) -> str:
    return parse_script(text, "a.sh", env).env[name].text


@pytest.mark.parametrize(
    "text, value",
    [
        ('A=1\nif [ "$A" -eq 1 ]; then\n X=yes\nelse\n X=no\nfi', "yes"),
        ('A=2\nif [ "$A" -eq 1 ]; then\n X=yes\nelse\n X=no\nfi', "no"),
        ('A=b\nif [[ "$A" == "a" ]]; then X=1; elif [[ $A = b ]]; then X=2; else X=3; fi', "2"),
        ('A=\nX=0\nif [ -z "$A" ]; then X=1; fi', "1"),
        ('A=q\nX=0\nif [ ! -n "$A" ]; then X=1; fi', "0"),
        ("A=1\nX=0\nif [ $A -gt 1 ] || [ $A -lt 1 ]; then X=1; fi", "0"),
        ("A=1\nX=0\nif [[ $A -ge 1 ]] && [[ $A -le 1 ]]; then X=1; fi", "1"),
        ("A=1\nX=0\nif [ $A -ne 1 ]; then\n if [ $A -eq 1 ]; then X=1; fi\n X=2\nfi", "0"),
        ("X=0\nif [ -f some.file ]; then X=1; fi", "1"),  # not known: read
        ("X=0\nif some_command; then X=1; else X=2; fi", "2"),  # not known: both are read, the last one counts
    ],
)
def test_a_branch_that_is_surely_not_taken_is_left_out(text: str, value: str) -> None:
    assert variable(text) == value


def test_what_stands_in_a_branch_counts_only_where_it_is_taken() -> None:
    text = "A=2\nif [ $A -eq 1 ]; then\n  python a.py --x 1\nelse\n  python b.py --x 2\nfi\npython c.py"
    assert [command.texts[1] for command in parse_script(text, "", {}).commands] == ["b.py", "c.py"]


def test_a_text_that_read_takes_is_a_variable() -> None:
    text = "read -r -d '' X <<EOF\n--a 1 \\\n--b \"two\"\nEOF\npython $X"
    script = parse_script(text, "s", {})
    assert script.commands[-1].texts == ("python", "--a", "1", "--b", '"two"')


def test_other_documents_are_no_commands() -> None:
    assert not parse_script("cat <<EOF\npython a.py\nEOF\n", "", {}).commands


def test_the_scripts_own_arguments_are_variables() -> None:
    assert variable("X=${1:-7}") == "7"
    assert variable("X=$1", ARG1="5") == "5"
    assert variable("X=${2}", ARG2="6") == "6"
    assert variable("X=$12", ARG12="6") != "6"


def test_an_array_in_a_quoted_value_is_one_text() -> None:
    assert variable('A=(--a 1 --b)\nX="run ${A[@]} end"') == "run --a 1 --b end"


@settings(max_examples=200)
@given(st.text(alphabet="if thenlsf[]=$A\"'1;&|\n-zqx \\<", max_size=80))
def test_any_text_is_read(text: str) -> None:
    parse_script(text, "f", {"A": "1"})


@pytest.mark.parametrize(
    "text, last",
    [
        ("( cd d; python a.py --x $((3 + 1)) )", ("python", "a.py", "--x", "4")),
        ("(cd d && python a.py --x $((3)))", ("python", "a.py", "--x", "3")),
        ("(python a.py --x 1 > log.txt) 2>&1 | tee all.txt &", ("python", "a.py", "--x", "1")),
        ("(\ncd d\npython a.py --x 1\n)", ("python", "a.py", "--x", "1")),
        ("(A=3; python a.py --x $A)", ("python", "a.py", "--x", "3")),
        ("((cd d); python a.py --x 1)", ("python", "a.py", "--x", "1")),
        ('(python a.py --x "(b)" --y f(1))', ("python", "a.py", "--x", "(b)", "--y", "f(1)")),
        ("python a.py --freq ([0]*3+[1]*2) --x 1", ("python", "a.py", "--freq", "([0]*3+[1]*2)", "--x", "1")),
        ("F=${F:-([0]*3+[1]*2)}\npython a.py --freq $F", ("python", "a.py", "--freq", "([0]*3+[1]*2)")),
        ("run() { python a.py --x 1; }", ("python", "a.py", "--x", "1")),
    ],
)
def test_a_subshells_brackets_are_no_part_of_its_words(text: str, last: tuple[str, ...]) -> None:
    found = [one.texts for one in parse_script(text, "s.sh", {}).commands if "a.py" in one.texts]
    assert [one for one in found if one[0] == "python"] == [last]
    assert not any("tee" in one or "(" in one[0] for one in found)


@pytest.mark.parametrize("word", ["", "local ", "local -a ", "declare -r -a ", "readonly -a ", "typeset -a "])
def test_an_array_may_be_declared_in_any_way(word: str) -> None:
    text = f"{word}ARGS=(\n  --x 1  # one\n  --y 2\n)\npython a.py ${{ARGS[@]}}"
    assert parse_script(text, "s.sh", {}).commands[-1].texts == ("python", "a.py", "--x", "1", "--y", "2")
