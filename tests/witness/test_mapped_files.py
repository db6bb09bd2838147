"""What from_pretrained leaves in the mapped file of weights, and what it makes memory for."""

from __future__ import annotations

from pathlib import Path

import pytest

torch = pytest.importorskip("torch")
MAPS = Path("/proc/self/maps")


@pytest.mark.skipif(not MAPS.exists(), reason="the system does not say what is mapped")
@pytest.mark.parametrize(("dtype", "mapped"), [("bfloat16", True), ("float32", False), (None, True)])
def test_weights_of_the_file_s_own_dtype_stay_there(tmp_path: Path, dtype: str | None, mapped: bool) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4, vocab_size=512
    )
    transformers.LlamaForCausalLM(config).to(torch.bfloat16).save_pretrained(tmp_path)
    more = {"dtype": getattr(torch, dtype)} if dtype else {}
    model = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, **more)
    address = model.model.layers[1].mlp.up_proj.weight.data_ptr()
    (line,) = (one for one in MAPS.read_text().splitlines() if _holds(one, address))
    assert line.endswith(".safetensors") is mapped


def _holds(line: str, address: int) -> bool:
    low, high = (int(word, 16) for word in line.split(maxsplit=1)[0].split("-"))
    return low <= address < high
