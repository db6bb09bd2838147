"""Command lines of front ends: arguments, sums that need no shell, the number of processes."""

from __future__ import annotations

import pytest

from trainledger.importers.launched import Line, calculated, ranks, split, world_of
from trainledger.importers.piece import Piece
from trainledger.importers.script import Command, parse_script
from trainledger.importers.shell_words import Word


def command(text: str) -> Command:
    return parse_script(text, "run.sh", {}).commands[-1]


def line(text: str) -> Line:
    one = command(text)
    return Line(one, one.words[1:])


def test_values_flags_and_lists() -> None:
    read = line("x --a 1 --b-c=two --flag --many q k 'v w' --none None --minus -1 file.yaml -m mod")
    values = {name: given.value for name, given in read.values.items()}
    assert values == {
        "a": 1,
        "b_c": "two",
        "flag": True,
        "many": ["q", "k", "v w"],
        "none": None,
        "minus": ["-1", "file.yaml"],
    }
    assert [word.text for word in read.rest] == ["-m", "mod"]
    assert read.values["many"].where == "run.sh:1 --many"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("$(expr 32 / 4)", "8"),
        ("$(expr 32 / $n / 2)", "8"),
        ("$((64 / 4 / 4))", "4"),
        ("$((n * 3))", "6"),
        ("$(( ${n} + 1 ))", "3"),
        ("$((9-4))", "5"),
        ("$(expr 7 / 2)", "3"),
        ("$((1 + 2 * 3))", "7"),
        ("$((-1))", "-1"),
        ("$(expr $n \\* 4)", "8"),
    ],
)
def test_sums_of_whole_numbers_are_worked_out(text: str, expected: str) -> None:
    word = calculated(Word(text, "run.sh:1", False), {"n": Word("2", "run.sh:1")})
    assert (word.text, word.known) == (expected, True)


@pytest.mark.parametrize(
    "text",
    ["$(expr 1 / 0)", "$(nproc)", "$((m / 2))", "$((1.5 * 2))", "plain", "$(expr )"],
)
def test_other_sums_stay_as_they_are(text: str) -> None:
    word = Word(text, "run.sh:1", False)
    assert calculated(word, {"n": Word("2", "run.sh:1")}) == word


@pytest.mark.parametrize(
    "text, world",
    [
        ("NPROC_PER_NODE=8 go x", 8),
        ("NNODES=2 NPROC_PER_NODE=8 go x", 16),
        ("torchrun --nproc_per_node 4 --nnodes=2 go x", 8),
        ("torchrun --nproc-per-node=4 -m go x", 4),
        ("accelerate launch --num_processes 6 -m go x", 6),
        ("deepspeed --num_gpus 4 --num_nodes 2 go x", 8),
        ("srun --ntasks=2 --ntasks-per-node=1 torchrun --nproc_per_node 8 --nnodes 2 go x", 16),
        ("torchrun --nproc_per_node 8 --nnodes 1:4 go x", 32),
        ("NPROC_PER_NODE=4 torchrun --nproc_per_node $OPEN go x", None),
        ("CUDA_VISIBLE_DEVICES=0,1,2 go x", 3),
        ("CUDA_VISIBLE_DEVICES= go x", None),
        ("NPROC_PER_NODE=gpu go x", None),
        ("go x", None),
    ],
)
def test_the_number_of_processes(text: str, world: int | None) -> None:
    one = command(text)
    parts = split(one, ("go",))
    assert parts is not None
    given = world_of(one, parts[0])
    assert (given.value if given else None) == world


def test_devices_count_only_where_one_process_runs_on_each() -> None:
    one = command("CUDA_VISIBLE_DEVICES=0,1 go x")
    assert world_of(one, (), devices=False) is None


@pytest.mark.parametrize(
    "text, devices, held",
    [
        ("torchrun --nproc_per_node $GPUS go x", True, "$GPUS"),
        ("NPROC_PER_NODE=gpu go x", False, "gpu"),
        ("go x", True, ""),
        ("go x", False, None),
        ("CUDA_VISIBLE_DEVICES=0,1 accelerate launch --config_file a.yaml go x", True, None),
    ],
)
def test_what_only_the_machine_knows_is_noted(text: str, devices: bool, held: str | None) -> None:
    one, piece = command(text), Piece("x", "run.sh")
    parts = split(one, ("go",))
    assert parts is not None
    assert ranks(piece, one, parts[0], devices) is None
    found = piece.facts.get("launch.open")
    assert (found.value if found else None) == held


def test_values_that_only_a_shell_knows_are_problems_where_they_are_read() -> None:
    read, piece = line("x --lora_rank $R --output_dir $(date)"), Piece("x", "run.sh")
    read.settle(piece, ("lora_rank",))
    assert [(one.path, one.where) for one in piece.problems] == [("lora_rank", "run.sh:1")]
    assert set(read.values) == {"output_dir"}
