"""Files of lengths: what is one, and the line that is wrong of what is not."""

from __future__ import annotations

import pytest

from trainledger.base.problems import InputError
from trainledger.importers.lengths_file import lengths_in


@pytest.mark.parametrize(
    "text",
    [
        "12\n7\n900\n",
        "12\r\n\r\n7\r\n900",
        "\ufeff12\n7\n900\n",
        "[12, 7,\n 900]",
        "12, 7, 900",
        "12;7;900\n",
        "length\n12\n7\n900\n",
        '"tokens"\n"12"\n"7"\n"900"\n',
        "id,Length,text\n1,12,a\n2,7,b\n3,900,c\n",
        "id\tnum_tokens\na\t12\nb\t7\nc\t900\n",
        '{"length": 12}\n{"length": 7, "id": 3}\n{"length": 900}\n',
    ],
)
def test_lengths_are_read(text: str) -> None:
    assert lengths_in(text, "lengths.csv") == [12, 7, 900]


@pytest.mark.parametrize(
    ("text", "where", "found"),
    [
        ("", "f", "no lengths"),
        ("[]", "f", "no lengths"),
        ("12\nseven\n3", "f:2", "found 'seven'"),
        ("12\n-3", "f:2", "found '-3'"),
        ("12\n0\n", "f:2", "found '0'"),
        ("12\n2.5\n", "f:2", "found '2.5'"),
        ("1,234\n2,345\n", "f:1", "found 2 values"),  # thousands, or numbers beside lengths: never guessed
        ("1,234", "f:1", "found 2 values"),
        ("id,text\n1,a\n", "f:1", "found ['id', 'text']"),
        ("id,length\n1\n", "f:2", "found 1 values"),
        ("[12, 7", "f:1", "no JSON"),
        ("[12, true, 2.5]", "f", "element 1 is true"),
        ('{"length": 12}\n{"text": 7}', "f:2", "found '{"),
        ('{"length": 12}\n{', "f:2", "no JSON"),
        ("12\n" + "1" * 5000, "f:2", "found '111"),
        ("[12, " + "1" * 5000 + "]", "f", "a number of too many digits"),
        ('{"length": 12}\n{"length": ' + "1" * 5000 + "}", "f:2", "a number of too many digits"),
    ],
)
def test_what_is_no_length_is_named_with_its_line(text: str, where: str, found: str) -> None:
    with pytest.raises(InputError) as caught:
        lengths_in(text, "f")
    problem = caught.value.problems[0]
    assert (problem.path, problem.where) == ("lengths.file", where)
    assert problem.found.startswith(found)
    assert len(problem.found) < 100
