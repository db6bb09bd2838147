"""Losses of published operator benchmarks: what their scripts and kernels do, by release or by measurement."""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source


@dataclass(frozen=True, slots=True)
class Distributions:
    """Liger's benchmark of the Jensen-Shannon divergence. From `rows_since` on the baseline takes the mixture's
    logarithm twice and sums by rows; from `divided_until` on the kernel itself divides by the number of rows; from
    `drawn_since` on the benchmark hands in a random gradient of the loss instead of 1."""

    rows_since: str
    divided_until: str
    drawn_since: str
    source: Source


DISTRIBUTIONS = Distributions(
    "0.4.0",
    "0.4.0",
    "0.8.0",
    Source(
        "Liger-Kernel",
        "benchmark/scripts/benchmark_jsd.py, TorchJSD; liger_kernel/ops/jsd.py, jsd_forward; benchmark/scripts/"
        "utils.py, run_memory_benchmark (commits 8e2f3a47, 24a7efca, 8ef203a4)",
        "0.3.1 to 0.8.0",
    ),
)


@dataclass(frozen=True, slots=True)
class FusedDivergence:
    """Liger's head with the Jensen-Shannon divergence as it was measured, with logits in the weights' dtype. From
    release `until` on they are fp32, and a chunk's part of the head's gradient is a tensor of its own."""

    until: str
    source: Source


FUSED_DIVERGENCE = FusedDivergence(
    "0.4.0",
    Source(
        "Liger-Kernel",
        "liger_kernel/ops/fused_linear_jsd.py, fused_linear_jsd_forward (commits ff6650bb, ac2e8f45)",
        "0.3.1 to 0.4.0",
    ),
)


@dataclass(frozen=True, slots=True)
class CompiledPreference:
    """Liger's chunked preference loss as Inductor compiles it: one pair of sequences a chunk.

    `likelihood`: the chosen half's negative log-likelihood is part of the loss. `in_place`: the gradient of the logits
    takes the logits' own buffer. `weighted`: the baseline multiplies the likelihood by a number.
    """

    likelihood: bool
    in_place: bool
    weighted: bool
    source: Source


def _preference(name: str, release: str) -> Source:
    return Source(
        "Liger-Kernel; PyTorch Inductor's program for it",
        f"liger_kernel/chunked_loss/{name}_loss.py, fused_linear_preference.py; buffers of the generated call()",
        f"{release}; torch 2.5.1",
    )


COMPILED_PREFERENCES: dict[str, CompiledPreference] = {
    "fused_linear_orpo_loss": CompiledPreference(True, False, False, _preference("orpo", "0.4.0")),
    "fused_linear_cpo_loss": CompiledPreference(True, False, True, _preference("cpo", "0.4.1")),
    "fused_linear_simpo_loss": CompiledPreference(False, True, True, _preference("simpo", "0.4.1")),
}


@dataclass(frozen=True, slots=True)
class LeftBehind:
    """What torch.compile keeps of a benchmark's sweep over batch sizes: the call that compiles for its second size
    (`sequences`) ends in a reference cycle that no collection reaches before the process ends. It holds the weight, its
    gradient, the loss, the inputs and their gradient, a chunk of `chunk` sequences, and both their targets."""

    sequences: int
    chunk: int
    source: Source


LEFT_BEHIND = LeftBehind(
    4,
    2,
    Source(
        "Liger-Kernel benchmarks; PyTorch Dynamo",
        "benchmark/scripts/benchmark_{orpo,cpo,simpo}_loss.py, x_values from 2 on, speed measured first; what was left "
        "was listed with gc.get_objects() after those calls on a CPU (CPO and SimPO: this call's; ORPO: also the first "
        "call's, which its published rows do not show)",
        "torch 2.5.1",
    ),
)


@dataclass(frozen=True, slots=True)
class CompiledDistillation:
    """Liger's distillation loss against a teacher's head as it was measured: `chunk` tokens at a time. In its sweep the
    calls of the first two sizes (`left`, tokens) compiled, and each left what it held, as `LeftBehind` says. The
    teacher's hidden states are `teacher` times as wide as the student's. From release `until` on the code is another.
    """

    chunk: int
    left: tuple[int, ...]
    teacher: int
    until: str
    source: Source


COMPILED_DISTILLATION = CompiledDistillation(
    1024,
    (1024, 2048),
    2,
    "0.5.0",
    Source(
        "Liger-Kernel; PyTorch Inductor's program for it on CUDA",
        "liger_kernel/chunked_loss/{fused_linear_distillation,jsd_loss}.py, test/utils.py, test/chunked_loss/"
        "test_jsd_loss.py, benchmark/scripts/benchmark_distill_jsd_loss.py as of the measurement on 2024-12-03 (pull "
        "requests 417 and 425, commits 720b5cbe, 9218cf07), older than any release: the loss through probabilities, "
        "the teacher's head trained in the baseline. Buffers of the generated call(). Inferred from the rows: of the "
        "chunk sizes that were measured, 1 and 1024, the published one; that torch is older than 2.5.1, whose program "
        "has fewer buffers; that no full garbage collection came after the first call",
        "0.4.2; torch 2.4.1",
    ),
)


@dataclass(frozen=True, slots=True)
class CompiledUnpaired:
    """Liger's loss over single sequences with labels (KTO), one sequence a chunk, and what its sweep over batch sizes
    left behind (`LeftBehind`): measuring speed, the call for `speed` sequences, without gradients; then, where heads
    have biases, the first one that measures memory, for `memory` sequences, since the reference's head has a bias only
    there. `shares`: parts of the sum over a chunk's logits. Before release `since` the code is another."""

    chunk: int
    shares: int
    speed: int
    memory: int
    since: str
    source: Source


COMPILED_UNPAIRED = CompiledUnpaired(
    1,
    512,
    4,
    2,
    "0.5.4",
    Source(
        "Liger-Kernel; PyTorch Inductor's program for it on CUDA; PyTorch Dynamo",
        "liger_kernel/chunked_loss/{fused_linear_unpaired_preference,kto_loss}.py, test/utils.py (HFAlignmentLoss), "
        "test/chunked_loss/test_kto_loss.py, benchmark/scripts/benchmark_kto_loss.py (commit ee5aaf26); buffers of the "
        "generated call(); what was left was listed with gc.get_objects() after each call of the sweep on a CPU",
        "0.5.4; torch 2.4.1 to 2.6.0 alike",
    ),
)


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """Liger's policy loss over completions (GRPO, GSPO), one completion a chunk. `counts`: numbers of all tokens that
    the mask leaves, which its program makes anew for each chunk."""

    counts: int
    source: Source


COMPILED_POLICY = CompiledPolicy(
    3,
    Source(
        "Liger-Kernel; PyTorch Inductor's program for it on CUDA",
        "liger_kernel/chunked_loss/{fused_linear_ppo,grpo_loss}.py, test/chunked_loss/test_grpo_loss.py, "
        "benchmark/scripts/benchmark_grpo_loss.py (commit 78125679); buffers of the generated call(), and what "
        "both asked PyTorch's own allocator for",
        "0.6.1; torch 2.7.1 and 2.14 alike",
    ),
)


@dataclass(frozen=True, slots=True)
class CompiledCosine:
    """Liger's distillation loss by the angle between both logits: `chunk` tokens at a time. The teacher's hidden states
    are `teacher` times as wide as the student's."""

    chunk: int
    teacher: int
    source: Source


COMPILED_COSINE = CompiledCosine(
    1024,
    2,
    Source(
        "Liger-Kernel; PyTorch Inductor's program for it on CUDA",
        "liger_kernel/chunked_loss/{fused_linear_distillation,cosine_similarity_loss}.py, test/utils.py "
        "(HFDistillationLoss), test/chunked_loss/test_cosine_loss.py, benchmark/scripts/"
        "benchmark_distill_cosine_loss.py (commit 08906d3d); buffers of the generated call(), and what both "
        "asked PyTorch's own allocator for",
        "0.5.10; torch 2.7.1",
    ),
)
