"""What starts a run, where another program is told to start it."""

from __future__ import annotations

import pytest

from trainledger.importers.command_line import lines_of
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.launch_script import extract
from trainledger.importers.launchers import launches
from trainledger.importers.script import parse_script


@pytest.mark.parametrize(
    "before", ["python submit.py --nodes 2", "uv run python submit.py --gpus 8", "kubectl exec pod"]
)
def test_the_run_behind_another_programs_dashes_is_read(before: str) -> None:
    script = parse_script(f"{before} -- torchrun --nproc_per_node 8 train.py --bf16 true", "s.sh", {})
    (run,) = launches(script)
    assert (run.launcher, run.program, run.options["nproc_per_node"].value) == ("torchrun", "train", "8")
    assert run.within in ("submit.py", "kubectl")
    assert [line.program.text for line in lines_of(script)] == ["train.py"] or "uv" in before


def test_what_the_other_program_does_is_listed_as_not_known() -> None:
    text = "python submit.py --nodes 2 -- torchrun --nproc_per_node 8 train.py --per_device_train_batch_size 2"
    piece = extract(Input("s.sh", "", script=parse_script(text, "s.sh", {})), Context())
    assert piece.given["parallel.world"].value == 8
    assert any("submit.py" in one.path for one in piece.ignored)


def test_dashes_that_start_nothing_are_the_programs_own() -> None:
    (run,) = launches(parse_script("python train.py --texts a -- b", "s.sh", {}))
    assert (run.program, run.within) == ("train", "")
    (line,) = lines_of(parse_script("srun --ntasks 8 -- python train.py", "s.sh", {}))
    assert "--ntasks" in [word.text for word in line.launcher]


def test_a_run_in_a_container_is_read() -> None:
    (run,) = launches(
        parse_script("docker run --gpus all -v $PWD:/w image:1 torchrun --nproc_per_node 4 t.py", "s.sh", {})
    )
    assert (run.launcher, run.program) == ("torchrun", "t")
