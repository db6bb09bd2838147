"""What tests of verbs share: a plan in a file, and a command line that is run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from trainledger.cli.main import main

Command = Callable[..., tuple[int, str, str]]
PLAN = """
model:
  model_type: llama
  hidden_size: 256
  num_hidden_layers: 4
  num_attention_heads: 8
  num_key_value_heads: 4
  head_dim: 32
  intermediate_size: 704
  vocab_size: 5000
  tie_word_embeddings: true
task: sft
precision: {weights: bf16, compute: bf16, gradients: bf16, master: null}
optimizer: {name: adamw, implementation: foreach, grad_clip: 1.0}
batch: {micro_batch: 2, sequence: 512, accumulation: 3}
parallel: {strategy: ddp, world: 4, dp: 4}
stack: {framework: transformers, versions: {torch: "2.13.0", transformers: "5.24.0"}, attention: sdpa, recompute: none}
device: a100-80gb
"""


@pytest.fixture
def plan(tmp_path: Path) -> str:
    """A small plan on four ranks, in a file."""
    path = tmp_path / "plan.yaml"
    path.write_text(PLAN, encoding="utf-8")
    return str(path)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run one command line: exit code, standard output, standard error."""

    def call(*arguments: str) -> tuple[int, str, str]:
        code = main(list(arguments))
        done = capsys.readouterr()
        return code, done.out, done.err

    return call
