"""Other tools' numbers, as their own code prints them."""

from __future__ import annotations

from typing import Any

import pytest

from trainledger.answer.theirs import ACCELERATE, ZERO2, ZERO3, Counted, counted, theirs
from trainledger.base.problems import InputError
from trainledger.model.build import build

GIB = 2**30
T5_3B = Counted(2_851_598_336, 32_899_072, 8, 8)
SMALL: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 3,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "tie_word_embeddings": False,
}  # fmt: skip


def test_zero_3_of_t5_3b_on_eight_devices() -> None:
    """DeepSpeed's documentation, "Memory requirements", which rounds to two digits."""
    rows = theirs(ZERO3, T5_3B, "0.16.0").rows
    shown = [tuple(round((size or 0) / GIB, 2) for _, size in row.sizes) for row in rows]
    assert shown == [(71.71, 0.12), (127.48, 0.12), (63.74, 0.79), (127.48, 0.79), (1.47, 6.1), (127.48, 6.1)]
    assert rows[0].options == "offload_param=cpu, offload_optimizer=cpu, zero_init=1"


@pytest.mark.parametrize(("release", "device"), [("0.14.2", (4 + 16 / 8)), ("0.14.3", (2 + 18 / 8)), ("", 2 + 18 / 8)])
def test_zero_2_changed_once(release: str, device: float) -> None:
    offloaded, plain = theirs(ZERO2, Counted(8 * 10**9, 0, 8, 8), release).rows
    assert dict(plain.sizes) == {"cpu": 4 * 8 * 8 * 10**9 * 3 // 2, "gpu": round(device * 8 * 10**9)}
    assert dict(offloaded.sizes) == {"cpu": 32 * 8 * 10**9 * 3 // 2, "gpu": 16 * 10**9}


def test_several_nodes_share_the_host() -> None:
    one, two = (theirs(ZERO3, Counted(10**9, 10**6, 8, node)).rows[0] for node in (8, 4))
    assert (dict(one.sizes)["cpu"], dict(two.sizes)["cpu"]) == (27 * 10**9, 27 * 10**9 // 2)


def test_accelerate_of_a_real_class() -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    accelerate = pytest.importorskip("accelerate")
    body = dict(SMALL)
    config = transformers.AutoConfig.for_model(body.pop("model_type"), **body)
    with accelerate.init_empty_weights():
        real = transformers.AutoModel.from_config(config, dtype=torch.float32)
    total, (largest, _) = accelerate.utils.calculate_maximum_sizes(real)
    rows = {row.options: dict(row.sizes) for row in theirs(ACCELERATE, counted(build(SMALL), 1, 1), "1.15.0").rows}
    assert rows["float32"] == {"largest_layer": largest, "total": total, "training_adam": 4 * total}
    assert rows["float16"] == {"largest_layer": largest // 2, "total": total // 2, "training_adam": 2 * total}
    assert rows["int4"] == {"largest_layer": largest // 8, "total": total // 8, "training_adam": None}


def test_accelerate_before_it_knew_mixed_precision() -> None:
    rows = {row.options: dict(row.sizes) for row in theirs(ACCELERATE, counted(build(SMALL), 1, 1), "0.24.1").rows}
    assert rows["int8"]["training_adam"] == 4 * (rows["int8"]["total"] or 0)


def test_the_largest_module_is_the_largest_of_its_own_parameters() -> None:
    assert counted(build(SMALL), 1, 1).largest == 1024 * 256
    assert counted(build({**SMALL, "vocab_size": 64}), 1, 1).largest == 640 * 256


def test_a_tied_head_with_a_bias_is_a_module_of_both() -> None:
    """DeepSpeed's model_to_params asks each module for its own parameters, shared ones too."""
    keys = {"model_type": "bert", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
            "num_attention_heads": 2, "vocab_size": 1024}  # fmt: skip
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    body = {key: value for key, value in keys.items() if key != "model_type"}
    with torch.device("meta"):
        real = transformers.AutoModelForMaskedLM.from_config(transformers.BertConfig(**body))
    largest = max(sum(one.numel() for one in each.parameters(recurse=False)) for each in real.modules())
    assert counted(build(keys), 1, 1).largest == largest == 1024 * 64 + 1024


def test_accelerate_counts_a_bool_as_a_bit() -> None:
    """GPT-BigCode registers a causal mask of bools."""
    keys = {"model_type": "gpt_bigcode", "n_embd": 64, "n_layer": 2, "n_head": 2, "vocab_size": 1024,
            "n_positions": 256}  # fmt: skip
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    accelerate = pytest.importorskip("accelerate")
    body = {key: value for key, value in keys.items() if key != "model_type"}
    with accelerate.init_empty_weights():
        real = transformers.AutoModel.from_config(transformers.GPTBigCodeConfig(**body), dtype=torch.float32)
    total, (largest, _) = accelerate.utils.calculate_maximum_sizes(real)
    given = counted(build(keys), 1, 1)
    assert (given.total_bytes, given.layer_bytes) == (total, largest)


@pytest.mark.parametrize(
    ("tool", "given", "path"),
    [
        ("deepspeed-zero4", T5_3B, "--as"),
        (ZERO3, Counted(10**9), "--largest"),
        (ZERO2, Counted(10**9, 0, 8, 3), "--per-node"),
        (ACCELERATE, Counted(10**9), "PLAN"),
    ],
)
def test_what_is_missing_is_named(tool: str, given: Counted, path: str) -> None:
    with pytest.raises(InputError) as caught:
        theirs(tool, given)
    assert [problem.path for problem in caught.value.problems] == [path]
