"""Which families' dropout stands in modules: what Transformers' own code still drops once these are idle."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from trainledger.facts.dropout import HIDDEN, SCORES  # noqa: E402

SMALL = {
    "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4, "vocab_size": 128,
    "max_position_embeddings": 64, "pad_token_id": 0, "d_model": 64, "n_heads": 4, "n_layers": 1, "ffn_dim": 128,
    "word_embed_proj_dim": 64, "use_cache": False, "num_key_value_heads": 2,
}  # fmt: skip
MASKED = ("bert", "roberta", "distilbert", "modernbert")
FAMILIES = (
    *MASKED, "gpt2", "gpt_bigcode", "gpt_neox", "gptj", "codegen", "persimmon", "phi", "phi3", "stablelm", "bloom",
    "falcon", "opt", "starcoder2", "llama", "granite", "seed_oss",
)  # fmt: skip


def built(family: str) -> Any:
    config = transformers.AutoConfig.for_model(family)
    keys = config.to_dict()
    chances = {one: 0.1 for one, value in keys.items() if ("dropout" in one or "pdrop" in one) and value is not None}
    known = {one: value for one, value in SMALL.items() if one in keys or hasattr(config, one)}
    known |= {"rotary_dim": 8} if "rotary_dim" in keys else {}
    maker = transformers.AutoModelForMaskedLM if family in MASKED else transformers.AutoModelForCausalLM
    kernel = "eager" if family == "bloom" else "sdpa"
    model = maker.from_config(transformers.AutoConfig.for_model(family, **known | chances), attn_implementation=kernel)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0
    return model.train()


@pytest.mark.parametrize("family", FAMILIES)
def test_what_is_dropped_still(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of hidden states (three dims), and of attention's weights (four, or PyTorch's own call)."""
    functional, seen = torch.nn.functional, {"hidden": False, "scores": False}
    drop, attend = functional.dropout, functional.scaled_dot_product_attention

    def dropping(x: Any, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
        seen["scores" if x.dim() > len("BSH") else "hidden"] |= bool(p and training)
        return drop(x, p, training, inplace)

    def attending(*args: Any, dropout_p: float = 0.0, **more: Any) -> Any:
        seen["scores"] |= bool(dropout_p)
        return attend(*args, dropout_p=dropout_p, **more)

    model = built(family)
    monkeypatch.setattr(functional, "dropout", dropping)
    monkeypatch.setattr(functional, "scaled_dot_product_attention", attending)
    model(input_ids=torch.ones(2, 8, dtype=torch.long))
    drops = family in ("bloom", "falcon", "opt", "starcoder2", "seed_oss")
    assert seen["hidden"] == (drops and family not in HIDDEN.families)
    assert seen["scores"] == (family not in SCORES.families)
