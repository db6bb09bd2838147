"""Answer.AI's fsdp_qlora script: Transformers' models with PEFT's LoRA, wrapped by FSDP1 layer by layer."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source

NAME = "fsdp_qlora"


@dataclass(frozen=True, slots=True)
class Script:
    """Releases of its packages while it was benchmarked: the last of Transformers that it does not exclude, the first
    of bitsandbytes that it asks for."""

    torch: str
    transformers: str
    peft: str
    bitsandbytes: str
    source: Source


SCRIPT = Script(
    "2.2.0", "4.37.2", "0.9.0", "0.43.0",
    Source("fsdp_qlora", "AnswerDotAI/fsdp_qlora: train.py, README.md, benchmarks_03_2024.md", "2024-06"),
)  # fmt: skip
