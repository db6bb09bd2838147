"""Counts of processes as every family's reader takes them, and that they agree on the same line."""

from __future__ import annotations

import pytest

from trainledger.importers import command_ranks, launch, launched, launchers
from trainledger.importers.command_line import lines_of
from trainledger.importers.inputs import Input
from trainledger.importers.launch_counts import counted, option_name, visible
from trainledger.importers.piece import Piece
from trainledger.importers.script import Script, parse_script
from trainledger.importers.shell_words import Word


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8", 8), ("1:4", 4), ("gpu:8", 8), ("gpu:a100:2", 2), ("0", None), ("-1", None), ("gpu", None), ("", None)],
)
def test_counts(text: str, expected: int | None) -> None:
    assert counted(text) == expected


def test_names_of_options_have_no_dashes() -> None:
    assert [option_name(text) for text in ("--nproc-per-node", "--nproc_per_node", "-N")] == [
        "nproc_per_node",
        "nproc_per_node",
        "N",
    ]


@pytest.mark.parametrize(("devices", "expected"), [("0,1", 2), ("", None), ("3", 1)])
def test_devices_that_a_run_may_see(devices: str, expected: int | None) -> None:
    assert visible({"CUDA_VISIBLE_DEVICES": Word(devices, "x:1")}) == expected


def native(script: Script) -> int | None:
    found = launch.ranks(launch.launch_of(script.commands[0].words), Piece("x", "x"))
    return found[0] if found else None


def hugging_face(script: Script) -> int | None:
    piece = Piece("x", "x")
    launchers.ranks_of(launchers.launches(script)[0], piece)
    return piece.given["parallel.world"].value if "parallel.world" in piece.given else None


def megatron(script: Script) -> int | None:
    return command_ranks.ranks_of(next(lines_of(script)), Input("<stdin>", "", script=script)).count


def front_end(script: Script) -> int | None:
    command = script.commands[0]
    parts = launched.split(command, ("train.py",))
    assert parts is not None
    found = launched.world_of(command, parts[0])
    return found.value if found else None


@pytest.mark.parametrize("reader", [native, hugging_face, megatron, front_end])
@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("torchrun --nproc_per_node 8 train.py", 8),
        ("torchrun --nproc-per-node=8 --nnodes=2 train.py", 16),
        ("torchrun --nnodes 1:4 --nproc_per_node=8 train.py", 32),
        ("python -m torch.distributed.run --nproc_per_node=4 train.py", 4),
        ("srun --nodes=2 --ntasks-per-node=1 torchrun --nnodes 2 --nproc_per_node 8 train.py", 16),
        ("deepspeed --num_gpus 4 train.py", 4),
        ("deepspeed --num_gpus=8 --num_nodes=2 train.py", 16),
        ("torchrun --nproc_per_node $N train.py", None),
    ],
)
def test_every_family_reads_a_launcher_the_same_way(reader, line: str, expected: int | None) -> None:
    assert reader(parse_script(line, "x.sh", {})) == expected
