"""The Trainer's FSDP settings in a file of their own."""

from __future__ import annotations

from pathlib import Path

import pytest

from trainledger.base.problems import InputError
from trainledger.importers.outside import read_any

RUN = (
    'torchrun --nproc_per_node 8 train.py --model_name_or_path Qwen/Qwen2.5-7B --fsdp "full_shard auto_wrap" '
    "--fsdp_config fsdp.json --bf16 True --per_device_train_batch_size 1 --model_max_length 2048\n"
)


def run(folder: Path, text: str) -> str:
    (folder / "fsdp.json").write_text(text, encoding="utf-8")
    (folder / "run.sh").write_text(RUN, encoding="utf-8")
    return str(folder / "run.sh")


def test_the_file_that_a_run_names_is_read_with_it(tmp_path: Path) -> None:
    text = '{"fsdp_transformer_layer_cls_to_wrap": ["L"], "version": 1, "backward_prefetch": "backward_post"}'
    draft = read_any([run(tmp_path, text)])
    assert [form for _, form in draft.formats][-1] == "Trainer's FSDP configuration"
    assert draft.plan.parallel.strategy == "fsdp1"
    assert draft.plan.parallel.options["backward_prefetch"] == "BACKWARD_POST"
    assert draft.unknown == ()


def test_a_key_that_it_does_not_have_is_named(tmp_path: Path) -> None:
    draft = read_any([run(tmp_path, '{"transformer_layer_cls_to_wrap": "L", "use_orig_parms": true}')])
    assert [(one.path, one.near) for one in draft.unknown] == [("use_orig_parms", "use_orig_params")]


def test_xlas_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="XLA's FSDP cannot be estimated"):
        read_any([run(tmp_path, '{"transformer_layer_cls_to_wrap": "L", "xla": true}')])
