"""How many processes a launcher starts."""

from __future__ import annotations

import pytest

from trainledger.importers.launch import launch_of, launched, ranks
from trainledger.importers.piece import Piece
from trainledger.importers.script import Command, parse_script


def command(line: str) -> Command:
    (found,) = parse_script(line, "x.sh", {}).commands
    return found


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --nproc_per_node=8 train.py", 8),
        ("srun --nodes 4 -l torchrun --nnodes 4 --nproc-per-node 8 -m x", 32),
        ("srun -N 2 torchrun --nproc_per_node 4 --rdzv_backend c10d x.py", 8),
        ("torchrun --standalone --nproc_per_node 2 x.py", 2),
        ("python x.py", None),
        ("torchrun --nnodes 2 x.py", None),
    ],
)
def test_ranks(line: str, expected: int | None) -> None:
    piece = Piece("x", "x")
    found = ranks(launch_of(command(line).words), piece)
    assert (found[0] if found else None) == expected
    assert piece.problems == []


@pytest.mark.parametrize("text", ["gpu", "0", "$N", "-1", "2.5", "²"])
def test_a_number_that_is_none_is_a_problem(text: str) -> None:
    piece = Piece("x", "x")
    launch, rest = launched(command(f"--nproc_per_node={text} x.py").words)
    assert ranks(launch, piece) is None
    assert [one.path for one in piece.problems] == ["parallel.world"]
    assert [word.text for word in rest] == ["x.py"]
