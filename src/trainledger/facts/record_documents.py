"""Documents that print runs without their releases, and the releases that were the newest on the day of the runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class DatedDocument:
    """A document of a repository, under each of its paths; what its runs were trained with and the releases then."""

    repo: str
    paths: frozenset[str]
    framework: str
    releases: Mapping[str, str]
    source: Source

    def is_of(self, framework: Any, versions: Mapping[str, Any], source: Mapping[str, Any]) -> bool:
        """Whether a record of this framework, which names these versions, is of this document and lacks releases."""
        here = source.get("repo") == self.repo and source.get("path") in self.paths
        return here and framework == self.framework and not self.releases.keys() & versions.keys()


DATED = (
    DatedDocument(
        "huggingface/transformers",
        frozenset(
            f"docs/source/{path}"
            for path in (
                "performance.mdx",
                "en/performance.mdx",
                "en/perf_train_gpu_one.mdx",
                "en/perf_train_gpu_one.md",
                "en/model_memory_anatomy.mdx",
                "en/model_memory_anatomy.md",
            )
        ),
        "transformers",
        {"torch": "1.10.1", "transformers": "4.15.0"},
        Source(
            "Transformers documentation, runs of bert-large",
            "docs/source/performance.mdx: nvidia-smi of 2022-01-11; releases of that day (pypi: torch, transformers)",
            "0ad5fe67b",
        ),
    ),
)
