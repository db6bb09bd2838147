"""A rank's ledger: weights of the head that no operation reads."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.lines.line import Account

BERT: dict[str, Any] = {
    "model_type": "bert", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 1024,
    "intermediate_size": 512, "max_position_embeddings": 512, "type_vocab_size": 2,
}  # fmt: skip


@pytest.mark.parametrize(
    ("architecture", "tied", "names"),
    [
        ("BertForMaskedLM", False, {"cls.predictions.bias"}),
        ("BertForMaskedLM", True, set()),
        ("BertForPreTraining", True, {"bert.pooler.dense.weight", "cls.seq_relationship.bias"}),
    ],
)
def test_weights_that_nothing_reads_have_no_gradient(architecture: str, tied: bool, names: set[str]) -> None:
    plan = plan_of({**BERT, "architectures": [architecture], "tie_word_embeddings": tied}, task="pretrain")
    lines = estimate(plan).ledger.lines
    weights = {line.name for line in lines if line.account is Account.WEIGHTS}
    slopes = {line.name for line in lines if line.account is Account.GRADIENTS}
    assert names <= weights
    assert not {name for name in names if any(name in slope for slope in slopes)}
    assert any("cls.predictions.transform.dense.weight" in slope for slope in slopes)
