"""Shell scripts read without being run: words, variables, arrays, arithmetic, and what stays open."""

from __future__ import annotations

import pytest

from trainledger.importers.launchers import arguments_of, launches, ranks_of
from trainledger.importers.piece import Piece
from trainledger.importers.script import parse_script


def words(text: str, env: dict[str, str] | None = None) -> list[tuple[str, ...]]:
    return [command.texts for command in parse_script(text, "run.sh", env or {}).commands]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run a 'b c' \"d e\" f\\ g", ("run", "a", "b c", "d e", "f g")),
        ("A=1\nrun $A ${A} \"$A\" '$A'", ("run", "1", "1", "1", "$A")),
        ('A="x y"\nrun $A "$A"', ("run", "x", "y", "x y")),
        ("run a \\\n  b # c\n", ("run", "a", "b")),
        ('A=(--x 1\n  --y "2 3") # two\nrun "${A[@]}" z', ("run", "--x", "1", "--y", "2 3", "z")),
        ('A=(a)\nA+=(b)\nrun "${A[@]}"', ("run", "a", "b")),
        ('A=()\nrun "${A[@]}" z', ("run", "z")),
        ("run ${B:-8} ${C-9}", ("run", "8", "9")),
        ("A=2\nB=3\nrun $((A * B + 1)) $((10/4)) $(( $A - 1 ))", ("run", "7", "2", "1")),
        ("A=2\nB=3\nrun $(( (A + B) * 2 )) $(((A + B) * B)) x$((A))", ("run", "10", "15", "x2")),
        ("run $((1/0)) a", ("run", "$((1/0))", "a")),
        ("run a >out 2>&1 <in 2>/dev/null b", ("run", "a", "b")),
        ("X=1 Y=2 run a", ("run", "a")),
        ('run "a;b" c;', ("run", "a;b", "c")),
        ("if true; then run a; fi", ("run", "a")),
        ('run "x \\\n y"', ("run", "x  y")),
        ("cat <<EOF\nrun b\nEOF\nrun a", ("run", "a")),
        ("A=a\nA+=b\nrun $A", ("run", "ab")),
        ("run ${A:+b} c", ("run", "c")),
        ("A=1\nrun ${A:+b} c", ("run", "b", "c")),
        ('A=(--x 1)\nrun "a ${A[*]} b" ${A[*]}', ("run", "a --x 1 b", "--x", "1")),
        ('A="run a;"\neval "$A"', ("run", "a")),
        ("A=2\neval run $A", ("run", "2")),
    ],
)
def test_a_command_is_split_into_words(text: str, expected: tuple[str, ...]) -> None:
    assert words(text) == [expected]


def test_a_word_knows_its_line_and_whether_it_is_open() -> None:
    (command,) = parse_script('run a \\\n "$(date)" \\\n $UNSET', "run.sh", {}).commands
    assert [(word.where, word.known) for word in command.words] == [
        ("run.sh:1", True), ("run.sh:1", True), ("run.sh:2", False), ("run.sh:3", False),
    ]  # fmt: skip


def test_what_a_shell_is_handed_runs() -> None:
    text = "srun --nodes=2 bash <<'EOT'\nA=1\nrun $A\nEOT\nrun b"
    assert words(text) == [("srun", "--nodes=2", "bash"), ("run", "1"), ("run", "b")]
    assert words("cat > x.sh <<EOT\nrun a\nEOT\nrun b") == [("run", "b")]


def test_a_variable_from_outside_gives_way_to_the_scripts_own() -> None:
    assert words("run $A", {"A": "1"}) == [("run", "1")]
    assert words("A=2\nrun $A", {"A": "1"}) == [("run", "2")]


def test_a_batch_systems_lines_set_its_variables() -> None:
    text = "#SBATCH --nodes=4\n#SBATCH --gpus-per-node 8\nrun $SLURM_NNODES $SLURM_GPUS_ON_NODE"
    assert words(text) == [("run", "4", "8")]


@pytest.mark.parametrize(
    ("line", "world"),
    [
        ("torchrun --nproc_per_node=4 --nnodes 2 t.py", 8),
        ("torchrun --nproc-per-node 4 t.py", 4),
        ("torchrun t.py", 1),
        ("torchrun --nnodes=1:3 --nproc_per_node=2 t.py", 6),
        ("CUDA_VISIBLE_DEVICES=0,1 torchrun --standalone --nproc_per_node gpu t.py", 2),
        ("python -m torch.distributed.launch --nproc_per_node 3 t.py", 3),
        ("deepspeed --num_gpus 2 --num_nodes 4 t.py", 8),
        ("deepspeed --include=a:0,1@b:4 t.py", 3),
        ("CUDA_VISIBLE_DEVICES=0,1,2 deepspeed t.py", 3),
        ("CUDA_VISIBLE_DEVICES=3 accelerate launch t.py", 1),
        ("srun --ntasks=2 torchrun --nproc_per_node=2 t.py", 2),
        ("torchrun --nproc_per_node=$N t.py", None),
        ("deepspeed t.py", None),
        ("accelerate launch t.py", None),
    ],
)
def test_a_launcher_says_how_many_ranks_there_are(line: str, world: int | None) -> None:
    (launch,) = launches(parse_script(line, "run.sh", {}))
    piece = Piece("", "")
    ranks_of(launch, piece)
    found = piece.given.get("parallel.world")
    assert (found.value if found else None) == world
    assert (world is None) == ("launch.open" in piece.facts)
    assert launch.program == "t"


def test_arguments_have_names_and_the_values_that_follow() -> None:
    (command,) = parse_script("run a.yaml --x 1 --y=2 --some-flag --list a b --neg -1 --last", "run.sh", {}).commands
    named, loose = arguments_of(command.words[1:])
    assert {name: one.value for name, one in named.items()} == {
        "x": "1", "y": "2", "some_flag": True, "list": ["a", "b"], "neg": "-1", "last": True,
    }  # fmt: skip
    assert [word.text for word in loose] == ["a.yaml"]
    assert named["y"].where == "run.sh:1 --y"


def test_a_variable_that_a_branch_changes_is_named_and_may_be_given() -> None:
    text = "N=1\nif [ $A = 1 ]; then N=4; M=2; fi\nrun $N $M"
    script = parse_script(text, "run.sh", {})
    assert script.commands[0].texts == ("run", "4", "2")
    assert {name: (word.text, word.where) for name, word in script.doubts.items()} == {"N": ("4", "run.sh:2")}
    given = parse_script("if x; then N=4; fi\nrun $N", "run.sh", {"N": "8"})
    assert (given.commands[0].texts, dict(given.doubts)) == (("run", "8"), {})


def test_a_branch_whose_condition_is_known_leaves_no_doubt() -> None:
    text = 'A=1\nN=1\nif [ "$A" = 1 ]; then\n N=4\nelse\n N=8\nfi\ncase $B in\n x) ;;\nesac\nrun $N'
    script = parse_script(text, "run.sh", {})
    assert (script.commands[-1].texts, dict(script.doubts)) == (("run", "4"), {})


def test_what_stands_after_an_unknown_condition_is_in_doubt() -> None:
    script = parse_script("N=1\nif x; then\n M=2\nelse\n N=8\nfi\nO=1\nO=2\nrun $N", "run.sh", {})
    assert {name: word.text for name, word in script.doubts.items()} == {"N": "8"}
