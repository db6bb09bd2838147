"""Megatron-LM's arguments: what follows from them, defaults by release, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trainledger.base.problems import InputError
from trainledger.facts.import_megatron import OPTIONS, ROWS
from trainledger.facts.options import find_option
from trainledger.importers import megatron, megatron_bridge, openrlhf, verl
from trainledger.importers.document import Document
from trainledger.importers.formats import Context, format_of
from trainledger.importers.inputs import Input, parse_mapping
from trainledger.importers.megatron_mesh import layout_stages
from trainledger.importers.megatron_model import pattern
from trainledger.importers.piece import Piece
from trainledger.importers.script import parse_script

BASE: dict[str, Any] = {
    "--num-layers": 12, "--hidden-size": 512, "--num-attention-heads": 8, "--seq-length": 1024,
    "--max-position-embeddings": 1024, "--micro-batch-size": 4, "--bf16": True,
}  # fmt: skip
HUGGING_FACE = {"--tokenizer-type": "HuggingFaceTokenizer"}
HALF = {"--bf16": False, "--fp16": True}


def piece(changes: dict[str, Any] | None = None, version: str = "") -> Piece:
    document = Document({**BASE, **(changes or {})}, {(): "m.yaml"})
    versions = {"megatron-core": version} if version else {}
    return megatron.extract(Input("m.yaml", "", document), Context(versions))


def value(changes: dict[str, Any], path: str, version: str = "") -> Any:
    found = piece(changes, version)
    assert not found.problems
    held = found.given.get(path) or found.filled.get(path)
    return held.value if held else None


def refused(changes: dict[str, Any]) -> str:
    return "\n".join(map(str, piece(changes).problems))


def script(text: str, env: dict[str, str] | None = None) -> Piece:
    read = parse_script(text, "s.sh", env or {})
    return megatron.extract(Input("s.sh", "", script=read), Context())


@pytest.mark.parametrize(
    "changes, path, found",
    [
        ({}, "model.intermediate_size", 2048),
        ({"--swiglu": True}, "model.intermediate_size", 1344),
        ({"--swiglu": True}, "model.hidden_act", "silu"),
        ({}, "model.num_key_value_heads", 8),
        ({"--group-query-attention": True, "--num-query-groups": 2}, "model.num_key_value_heads", 2),
        ({"--group-query-attention": True}, "model.num_key_value_heads", 1),
        ({}, "model.head_dim", 64),
        ({"--kv-channels": 128}, "model.head_dim", 128),
        ({}, "model.vocab_size", 50304),
        ({"--tensor-model-parallel-size": 4}, "model.vocab_size", 50688),
        ({"--vocab-size": 1000, "--make-vocab-size-divisible-by": 64}, "model.vocab_size", 1024),
        ({"--padded-vocab-size": 777}, "model.vocab_size", 777),
        ({"--vocab-size": 1000, "--no-pad-vocab-size": True}, "model.vocab_size", 1000),
        ({"--tokenizer-type": "Llama2Tokenizer", "--tokenizer-model": "t"}, "model.vocab_size", 32000),
        ({**HUGGING_FACE, "--tokenizer-model": "meta-llama/Llama-3.1-8B"}, "model.vocab_size", 128256),
        ({"--use-rotary-position-embeddings": True}, "model.position_embedding_type", "rope"),
        ({"--num-experts": 8}, "model.moe_intermediate_size", 2048),
        ({"--num-experts": 8}, "model.num_experts_per_tok", 2),
        ({"--num-experts": 8, "--moe-layer-freq": "([0]*3+[1]*9)"}, "model.first_k_dense_replace", 3),
        ({"--num-experts": 8, "--moe-layer-freq": 2}, "model.moe_layer_freq", 2),
        ({"--num-experts": 8, "--moe-layer-freq": "[0,1]*6"}, "model.moe_layer_freq", [0, 1] * 6),
        ({"--num-experts": 0}, "model.num_experts", None),
        ({}, "precision.gradients", "fp32"),
        ({"--grad-reduce-in-bf16": True}, "precision.gradients", "bf16"),
        ({"--bf16": False, "--fp16": True}, "precision.gradients", "fp16"),
        ({**HALF, "--accumulate-allreduce-grads-in-fp32": True}, "precision.gradients", "fp32"),
        ({"--bf16": False}, "precision.master", None),
        ({"--use-precision-aware-optimizer": True, "--main-params-dtype": "fp16"}, "precision.master", "fp16"),
        ({"--fp8-format": "hybrid", "--fp8-param-gather": True}, "precision.weights", "fp8"),
        ({"--fp8-format": "e4m3", "--fp8-recipe": "mxfp8"}, "precision.compute", "mxfp8"),
        ({"--fp4-format": "e2m1"}, "precision.compute", "nvfp4"),
        ({"--sequence-parallel": True}, "parallel.sp", None),
        ({"--sequence-parallel": True, "--tensor-model-parallel-size": 2}, "parallel.sp", True),
        ({"--pipeline-model-parallel-size": 4, "--num-layers-per-virtual-pipeline-stage": 1}, "parallel.vpp", 3),
        ({"--pipeline-model-parallel-size": 4, "--num-virtual-stages-per-pipeline-rank": 3}, "parallel.vpp", 3),
        ({"--pipeline-model-parallel-size": 2}, "parallel.schedule", "1f1b"),
        ({"--optimizer": "dist_muon"}, "parallel.strategy", "megatron-distopt"),
        ({"--optimizer": "dist_muon"}, "optimizer.name", "muon"),
        ({"--clip-grad": 0}, "optimizer.grad_clip", None),
        ({"--recompute-activations": True}, "stack.recompute.modules", ["core_attn"]),
        ({"--moe-layer-recompute": True}, "stack.recompute.modules", ["moe"]),
        ({"--cross-entropy-loss-fusion": True}, "stack.loss", "vocab-parallel-fused"),
        ({"--transformer-impl": "local"}, "stack.attention", "unfused"),
        ({"--attention-backend": "auto"}, "stack.attention", "fused"),
        ({"--no-rope-fusion": True}, "stack.options.no_rope_fusion", True),
        ({"--disable-jit-fuser": True}, "stack.options.jit_fuser", False),
        ({"--overlap-grad-reduce": False}, "parallel.options.overlap_grad_reduce", None),
        ({"--expert-model-parallel-size": 4, "--num-experts": 8}, "parallel.world", 4),
        ({"--sft": True}, "task", "sft"),
        ({"--save": "/x", "--async-save": True}, "save.asynchronous", True),
        ({"--async-save": True}, "save.asynchronous", None),  # nothing is saved
        ({"--save": "/x", "--ckpt-format": "torch"}, "save.format", "megatron-torch"),
        ({"--save": "/x", "--no-save-optim": True}, "save.optimizer", False),
        ({"--save": "/x", "--dist-ckpt-optim-fully-reshardable": True}, "save.resharded", True),
    ],
)  # fmt: skip
def test_what_an_argument_means(changes: dict[str, Any], path: str, found: Any) -> None:
    assert value(changes, path) == found


@pytest.mark.parametrize("version, size", [("0.14.0", 1152), ("0.17.0", 1152), ("0.18.0", 1024), ("", 1024)])
def test_an_empty_tokenizers_vocabulary_is_dated(version: str, size: int) -> None:
    given = {"--tokenizer-type": "NullTokenizer", "--vocab-size": 1024}
    assert value(given, "model.vocab_size", version) == size


@pytest.mark.parametrize(
    "version, changes, path, found",
    [
        ("0.5", {}, "stack.kernels", []),
        ("0.5", {}, "stack.options.transformer_impl", "local"),
        ("0.7", {}, "stack.kernels", ["te"]),
        ("0.14.0", {"--use-megatron-fsdp": True}, "parallel.options.data_parallel_sharding_strategy", "no_shard"),
        ("", {"--use-megatron-fsdp": True}, "parallel.options.data_parallel_sharding_strategy", "optim_grads_params"),
        ("0.14.0", {"--deterministic-mode": True}, "stack.env.CUBLAS_WORKSPACE_CONFIG", None),
        ("0.19.0", {"--deterministic-mode": True}, "stack.env.CUBLAS_WORKSPACE_CONFIG", ":4096:8"),
    ],
)
def test_defaults_are_those_of_the_release(version: str, changes: dict[str, Any], path: str, found: Any) -> None:
    assert value(changes, path, version) == found


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"--num-layers": "x"}, "--num-layers: found 'x'; a whole number of at least 1"),
        ({"--hidden-size": 500}, "it must divide --hidden-size 500"),
        ({"--micro-batch-size": "${MBS}"}, "Give it with --env MBS=..."),
        ({"--num-experts": 8, "--moe-layer-freq": "__import__('os').getpid()"}, "--moe-layer-freq"),
        ({"--num-experts": 8, "--moe-layer-freq": "[1]*99999999999"}, "--moe-layer-freq"),
        ({"--recompute-granularity": "full"}, "--recompute-method: missing"),
        ({"--recompute-granularity": "some"}, "one of full, selective"),
        ({"--pipeline-model-parallel-size": 5, "--num-layers-per-virtual-pipeline-stage": 1}, "must be a multiple"),
        ({"--pipeline-model-parallel-size": 2, "--pipeline-model-parallel-layout": "Et|t|t"}, "its 3 stages"),
        ({"--hybrid-layer-pattern": "M*"}, "a hybrid model"),
        ({"--perform-rl-step": True}, "reinforcement learning"),
        ({"--deepspeed": True}, "Megatron-DeepSpeed"),
        ({"--tokenizer-type": "TikTokenizer"}, "Add --vocab-size N."),
        ({"--hidden-dropout": -1}, "not negative"),
        ({"--num-layers": True}, "--num-layers: no value"),
        ({"--micro-batch-size": [1, 2]}, "found '1 2'"),
    ],
)
def test_what_cannot_be_read_is_named(changes: dict[str, Any], words: str) -> None:
    assert words in refused(changes)


def test_what_is_not_known_has_its_nearest() -> None:
    found = piece({"--micro-batchsize": 4, "--fp32-residual-connection": True})
    assert [(one.path, one.near) for one in found.unknown] == [("--micro-batchsize", "--micro-batch-size")]
    assert [(one.path, one.direction) for one in found.uncounted] == [
        ("--fp32-residual-connection", "the ledger may be too low")
    ]


def test_every_argument_has_one_row_and_every_option_its_place() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert all(re.fullmatch(r"--[A-Za-z0-9_-]+", row.name) for row in ROWS)
    assert all(find_option(*path.rsplit(".", 1)) for _, path in OPTIONS)


@pytest.mark.parametrize(
    "text, count", [("t|t|t", 3), ("Et*3|(tt|)*6mL", 8), ("E|(t|)*4L", 6), ("Et,t|tL", 2), ("E(t|t)tL", 2)]
)
def test_stages_of_a_layout(text: str, count: int) -> None:
    assert layout_stages(text) == count


def test_a_layout_that_a_shell_would_read_loses_its_backslashes() -> None:
    text = {"--pipeline-model-parallel-size": 4, "--pipeline-model-parallel-layout": r"Et\|\(tt\|\)*6L"}
    found = piece({**text, "--num-layers": 13}).given
    assert found["parallel.options.pipeline_model_parallel_layout"].value == "Et|(tt|)*6L"
    assert found["parallel.vpp"].value == 2


@pytest.mark.parametrize("text, found", [("1", 1), ("[1,0]*2", [1, 0, 1, 0]), ("([0]*2+[1]*2)", [0, 0, 1, 1])])
def test_patterns_of_layers(text: str, found: Any) -> None:
    assert pattern(text, 4) == found


@pytest.mark.parametrize(
    "text", ["[2]", "[[1]]", "a", "1+1", "[1]*5", "f()", "[1]+1", "", "[x for x in y]", "(" * 9999]
)
def test_other_expressions_are_refused(text: str) -> None:
    with pytest.raises(InputError):
        pattern(text, 4)


FLAGS = ("--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --max-position-embeddings 8 "
         "--micro-batch-size 1 --bf16")  # fmt: skip


@pytest.mark.parametrize(
    "text, world",
    [
        (f"torchrun --nproc_per_node=4 --nnodes=2 pretrain_gpt.py {FLAGS}", 8),
        (f"torchrun --nproc-per-node 4 pretrain_gpt.py {FLAGS}", 4),
        (f"python -m torch.distributed.run --nproc_per_node 2 pretrain_gpt.py {FLAGS}", 2),
        (f"GPUS_PER_NODE=8\nNNODES=3\nsrun python pretrain_gpt.py {FLAGS}", 24),
        (f"srun -N 2 --ntasks-per-node=8 python pretrain_gpt.py {FLAGS}", 16),
        (f"srun -n 32 python pretrain_gpt.py {FLAGS}", 32),
        (f"mpirun -np 16 python pretrain_gpt.py {FLAGS}", 16),
        (f"#SBATCH --nodes=2\n#SBATCH --gres=gpu:4\nsrun python pretrain_gpt.py {FLAGS}", 8),
        (f"#SBATCH --nodes=4\ntorchrun --nnodes $SLURM_NNODES --nproc_per_node 8 pretrain_gpt.py {FLAGS}", 32),
        (f"export WORLD_SIZE=64\npython pretrain_gpt.py {FLAGS}", 64),
        (f"cmd='torchrun --nproc_per_node 8 pretrain_gpt.py {FLAGS}'\neval $cmd", 8),
        (f'srun bash -c "torchrun --nproc_per_node 8 --nnodes 2 pretrain_gpt.py {FLAGS}"', 16),
    ],
)
def test_a_launcher_says_how_many_ranks_run(text: str, world: int, tmp_path: Path) -> None:
    path = tmp_path / "run.sh"
    path.write_text(text)
    found = megatron.extract(Input(str(path), "", script=parse_script(text, str(path), {})), Context())
    assert found.given["parallel.world"].value == world
    assert not found.problems


def test_ranks_that_nothing_counts_are_asked_for() -> None:
    text = f"torchrun --nproc_per_node $GPUS pretrain_gpt.py {FLAGS}"
    assert "Give it with --env GPUS=..." in str(script(text).problems[0])
    assert script(text, {"GPUS": "4"}).given["parallel.world"].value == 4
    substituted = script(f"torchrun --nproc_per_node $(nvidia-smi -L | wc -l) pretrain_gpt.py {FLAGS}")
    assert not substituted.problems
    assert substituted.ignored[0].path == "parallel.world"


def test_an_argument_keeps_its_line_through_arrays() -> None:
    found = script(
        "A=(\n  --num-layers 2\n  --hidden-size 64\n)\npython pretrain_gpt.py ${A[@]} --num-attention-heads 4"
    )
    assert found.given["model.hidden_size"].where == "s.sh:3 --hidden-size"


def test_formats_are_told_apart() -> None:
    def named(text: str) -> str:
        return format_of(Input("s.sh", "", script=parse_script(text, "s.sh", {})))

    assert named(f"torchrun pretrain_gpt.py {FLAGS}") == megatron.FORMAT
    assert named(f"torchrun my_train.py {FLAGS}") == megatron.FORMAT
    assert named("python3 -m verl.trainer.main_ppo data.max_prompt_length=5") == verl.FORMAT
    assert named("deepspeed --module openrlhf.cli.train_sft --max_len 5") == openrlhf.FORMAT
    bridge = parse_mapping("model: {num_layers: 2}\ntrain: {micro_batch_size: 1}\nddp: {}", "a.yaml")
    assert format_of(Input("a.yaml", "", bridge)) == megatron_bridge.FORMAT


NAMES = st.sampled_from([*sorted(row.name for row in ROWS), "--x"])
VALUES = st.one_of(
    st.booleans(), st.integers(-5, 10**20), st.none(), st.floats(), st.text(max_size=12),
    st.sampled_from(["$X", "([0]*3+[1]*5)", "[a b]", "fp32", "full", "auto", "Et|(t|)*9L", "0", "true", "$((1/0))"]),
    st.lists(st.one_of(st.integers(), st.text(max_size=5)), max_size=3),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)  # fmt: skip


@settings(max_examples=300)
@given(st.dictionaries(NAMES, VALUES, max_size=12), st.booleans())
def test_any_arguments_make_a_piece(changes: dict[str, Any], based: bool) -> None:
    document = Document({**(BASE if based else {}), **changes}, {(): "m.yaml"})
    megatron.identify(Input("m.yaml", "", document))
    assert isinstance(megatron.extract(Input("m.yaml", "", document), Context()), Piece)


@settings(max_examples=200)
@given(st.lists(st.one_of(NAMES, st.text(alphabet="-0123=abc $(){}[]\"'\n\\*", max_size=10)), max_size=15))
def test_any_command_makes_a_piece(words: list[str]) -> None:
    read = parse_script(f"torchrun --nproc_per_node 2 pretrain_gpt.py {FLAGS} {' '.join(words)}", "s", {})
    found = Input("s", "", script=read)
    for module in (megatron, verl, openrlhf, megatron_bridge):
        module.identify(found)
    assert isinstance(megatron.extract(found, Context()), Piece)
