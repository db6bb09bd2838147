"""PEFT's adapters other than LoRA: the sizes they have by default, and since which release they run as known here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.trainer import TRAINER_BATCH


@dataclass(frozen=True, slots=True)
class MethodRow:
    """A method: PEFT's default rank (0: it has none), its other sizes by PEFT's names, and the first release read in
    which its layers run as they are written here."""

    kind: str
    rank: int
    sizes: tuple[tuple[str, int], ...]
    since: str
    source: Source

    def size(self, name: str) -> int:
        """PEFT's default of one of its sizes."""
        return dict(self.sizes)[name]


def _row(kind: str, folder: str, rank: int = 0, since: str = "", **sizes: int) -> MethodRow:
    source = Source(f"PEFT {kind}", f"peft/tuners/{folder}/layer.py, config.py, model.py", "0.21.2")
    return MethodRow(kind, rank, tuple(sizes.items()), since, source)


METHODS: dict[str, MethodRow] = {
    row.kind: row
    for row in (
        _row("adalora", "adalora", init_r=12),
        _row("ia3", "ia3"),
        _row("vera", "vera", 256),
        _row("loha", "loha", 8),
        _row("lokr", "lokr", 8, decompose_factor=-1),
        _row("oft", "oft", 0, "0.16.0", oft_block_size=32, num_cayley_neumann_terms=5),
        _row("boft", "boft", 0, "0.12.0", boft_block_size=4, boft_block_num=0, boft_n_butterfly_factor=1),
        _row("fourierft", "fourierft", 0, "", n_frequency=1000),
        _row("ln-tuning", "ln_tuning"),
    )
}


@dataclass(frozen=True, slots=True)
class TrainedRanks:
    """Since this release AdaLoRA's own count of ranks needs a gradient like its factors, so that what is divided by it
    is kept."""

    since: str
    source: Source


TRAINED_RANKS = TrainedRanks("0.21", Source("PEFT adalora", "peft/tuners/adalora/layer.py", "0.15.2, 0.18.1, 0.21.2"))


@dataclass(frozen=True, slots=True)
class ImportanceScores:
    """AdaLoRA's allocator keeps these of every factor, in fp32, from the first step on: where `update_and_allocate` is
    called after each step, as PEFT's loops and the trainers of these packages do, and the Trainer does not."""

    tensors: tuple[str, ...]
    calls: tuple[str, ...]
    source: Source

    def kept(self, versions: Mapping[str, str]) -> bool:
        """Whether a run of these packages calls it."""
        return TRAINER_BATCH.package not in versions or any(name in versions for name in self.calls)


IMPORTANCE = ImportanceScores(
    ("ipt", "exp_avg_ipt", "exp_avg_unc"),
    ("ms-swift",),
    Source(
        "PEFT adalora, RankAllocator.update_ipt",
        "peft/tuners/adalora/{layer,model}.py; method_comparison/MetaMathQA/run.py; transformers/trainer.py, "
        "swift/callbacks/adalora.py: callers of update_and_allocate",
        "0.21.2; 5.24.0",
    ),
)
