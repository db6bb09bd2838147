"""Every file of every format is taken for its own format, and for no other with the same certainty."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from trainledger.base.problems import InputError
from trainledger.importers.formats import FORMATS, recognised
from trainledger.importers.inputs import Input, read_input

HERE = Path(__file__).parent
FILES, NATIVE = HERE / "files", HERE.parent / "data" / "outside"
# folder of files -> the format that its files are
FOLDERS = {
    "accelerate": "accelerate configuration",
    "axolotl": "Axolotl",
    "bridge": "Megatron-Bridge or NeMo 2 configuration",
    "deepspeed": "DeepSpeed configuration",
    "fsdp": "Trainer's FSDP configuration",
    "llamafactory": "LLaMA-Factory",
    "megatron": "Megatron-LM arguments",
    "model": "model folder or config.json",
    "openrlhf": "OpenRLHF command line",
    "script": "launch script",
    "swift": "ms-swift",
    "trainer": "TrainingArguments",
    "trl": "TrainingArguments",
    "verl": "verl command line or configuration",
    "torchtune": "torchtune",
    "torchtitan": "torchtitan",
    "litgpt": "litgpt",
}
NONE = ("script/broken_no_run.sh",)  # which starts nothing


def files() -> list[tuple[str, Path]]:
    """Every file that is given to be read, with its folder's name; what is kept beside them is none."""
    found = [
        (folder.name, path)
        for folder in sorted(FILES.iterdir())
        for case in sorted(folder.iterdir())
        if not case.name.startswith("_")
        for path in _asked(case)
    ]
    for name in ("torchtune", "torchtitan", "litgpt"):
        native = sorted((NATIVE / name).iterdir())
        found += [(name, path) for path in native if path.is_file() and path.suffix != ".draft"]
        found += [(name, path) for path in sorted((NATIVE / name / "broken").iterdir()) if path.suffix != ".txt"]
    return found


def _asked(case: Path) -> list[Path]:
    asked = case / "READ"
    return [case / name for name in asked.read_text().split()] if asked.exists() else [case]


def _scores(given: Input) -> dict[str, float]:
    return {name: import_module(f"trainledger.importers.{module}").identify(given) for name, module in FORMATS.items()}


@pytest.mark.parametrize(("name", "path"), files(), ids=lambda one: one if isinstance(one, str) else one.name)
def test_a_file_is_recognised_as_its_own_format(name: str, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FILES)
    try:
        given = read_input(str(path))
    except InputError:
        assert "broken" in f"{path}"  # no text of its kind at all
        return
    if path.relative_to(HERE.parent).as_posix().endswith(NONE):
        assert recognised(given) == ""
        return
    assert recognised(given) == FOLDERS[name]
    scores = _scores(given)
    assert [one for one, score in scores.items() if score == max(scores.values())] == [FOLDERS[name]]


def test_every_format_has_files() -> None:
    folders = {name for name, _ in files()}
    assert folders == set(FOLDERS)
    assert set(FOLDERS.values()) | {"adapter_config.json"} == set(FORMATS)


def test_a_model_folder_with_an_adapter_names_it(tmp_path: Path) -> None:
    path = tmp_path / "adapter_config.json"
    path.write_text('{"peft_type": "LORA", "r": 8, "base_model_name_or_path": "x"}', encoding="utf-8")
    assert recognised(read_input(str(path))) == "adapter_config.json"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [("model_name_or_path: x\nfinetuning_type: lora\n", "LLaMA-Factory"), ("num_train_epochs: 1\n", "launch script")],
)
def test_a_script_that_several_projects_have_is_told_by_the_file_it_is_given(
    keys: str, expected: str, tmp_path: Path
) -> None:
    (tmp_path / "run.yaml").write_text(keys, encoding="utf-8")
    path = tmp_path / "run.sh"
    path.write_text("torchrun --nproc_per_node 2 src/train.py run.yaml\n", encoding="utf-8")
    assert recognised(read_input(str(path))) == expected


@pytest.mark.parametrize("name", ["line.txt", "line"])
def test_a_pasted_line_is_a_script(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text('NGPU=8 CONFIG_FILE="./a.toml" ./run_train.sh --training.steps 2\n', encoding="utf-8")
    assert recognised(read_input(str(path))) == "torchtitan"
