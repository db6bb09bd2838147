"""verl's and OpenRLHF's command lines: any text makes a piece, roles are listed, the estimate refuses by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainledger.answer.acting import rows_of
from trainledger.answer.estimate import estimate
from trainledger.base.problems import InputError
from trainledger.facts.import_rl import NAMES, OPENRLHF_ROWS, VERL_READ, VERL_ROWS
from trainledger.importers import openrlhf, verl
from trainledger.importers.document import Document
from trainledger.importers.formats import Context
from trainledger.importers.inputs import Input
from trainledger.importers.outside import read_any
from trainledger.importers.piece import Piece
from trainledger.importers.script import parse_script

FILES = Path(__file__).parent / "files"


def of(module: Any, text: str) -> Piece:
    piece: Piece = module.extract(Input("s.sh", "", script=parse_script(text, "s.sh", {})), Context())
    return piece


@pytest.mark.parametrize(
    "file, roles, phases",
    [
        ("verl/grpo.sh", "policy, reference, rollout", 5),
        ("verl/ppo_critic.sh", "policy, critic, rollout", 6),
        ("openrlhf/ppo_new.sh", "policy, reference, rollout", 5),
        ("trl/grpo_vllm.yaml", "policy, rollout", 4),
    ],
)
def test_who_acts_is_read(file: str, roles: str, phases: int) -> None:
    draft = read_any([str(FILES / file)], ["device=h100-80gb"])
    found = estimate(draft.plan)
    assert found.groups[0].name == roles
    assert len([row for row in rows_of(found.plan, found.groups) if row.group == roles]) == phases


def test_a_share_of_a_device_needs_one() -> None:
    with pytest.raises(InputError, match=r"roles.rollout.engine.memory_share: given without a device"):
        estimate(read_any([str(FILES / "verl" / "grpo.sh")]).plan)


def test_keys_of_roles_become_keys_of_the_plan() -> None:
    roles = read_any([str(FILES / "verl" / "grpo.sh")]).plan.roles
    assert roles is not None
    engine = roles.of("rollout").engine
    assert engine is not None
    assert (engine.memory_share, engine.sleep_level) == (0.6, 2)
    assert (roles.of("reference").forward_batch, roles.of("reference").states) == (16, {"idle": "offloaded"})
    old = read_any([str(FILES / "openrlhf" / "ppo_old.sh")]).plan.roles
    assert old is not None
    assert old.of("reward").model is not None
    assert old.of("policy").forward_batch == 16
    assert {old.of(name).placement for name in ("reference", "reward", "rollout")} == {"colocated"}


def test_what_megatron_workers_hold_is_listed_as_not_counted() -> None:
    paths = {one.path for one in read_any([str(FILES / "verl" / "megatron.sh")]).uncounted}
    assert "actor_rollout_ref.rollout.gpu_memory_utilization" in paths


def test_overrides_are_hydras() -> None:
    own = "actor_rollout_ref."
    found = of(
        verl,
        "python -m verl.trainer.main_ppo ++data.max_prompt_length=1 data.max_prompt_length=3 "
        f"{own}model.path=m {own}actor.ppo_micro_batch_size_per_gpu=2",
    )
    assert found.given["batch.sequence"].value == 515
    assert found.given["batch.sequence"].where == "data.max_response_length"


def test_tables_name_each_key_once() -> None:
    for rows in (VERL_ROWS, OPENRLHF_ROWS):
        assert len({row.name for row in rows}) == len(rows)


WORDS = st.one_of(
    st.text(alphabet="ab01.=-[]$\"' {}", max_size=8), st.sampled_from(["1", "0", "-1", "true", "null", "[a]", "bf16"])
)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from(VERL_READ.split()), WORDS), max_size=10))
def test_any_overrides_make_a_piece(pairs: list[tuple[str, str]]) -> None:
    text = " ".join(f"{key}={value!r}" for key, value in pairs)
    assert isinstance(of(verl, f"python -m verl.trainer.main_ppo {text}"), Piece)
    data: dict[str, Any] = {"actor_rollout_ref": {"model": dict(pairs)}, "data": [1]}
    found = Input("v.yaml", "", Document(data, {}))
    assert verl.identify(found)
    assert isinstance(verl.extract(found, Context()), Piece)


@settings(max_examples=150)
@given(st.lists(st.tuples(st.sampled_from([name for names in NAMES.values() for name in names]), WORDS), max_size=10))
def test_any_arguments_make_a_piece(pairs: list[tuple[str, str]]) -> None:
    text = " ".join(f"{key} {value!r}" for key, value in pairs)
    assert isinstance(of(openrlhf, f"deepspeed --module openrlhf.cli.train_sft {text}"), Piece)
