"""TRL's trainers over preferences, by release: rows newest first."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trainledger.base.sources import Source
from trainledger.facts.preference_row import (
    FUSED,
    READ,
    TRL,
    Asked,
    Before,
    Cut,
    Likelihood,
    Metric,
    Outputs,
    Picked,
    Preference,
    Reading,
)


@dataclass(frozen=True, slots=True)
class EntropyChunk:
    """Entropies for a trainer's log: tokens of a chunk, and tensors of its logits' size that live at once."""

    tokens: int
    tensors: int
    source: Source


ENTROPY_CHUNK = EntropyChunk(
    128, 3, Source("TRL entropies", "trl/trainer/utils.py, entropy_from_logits: log-softmax, exp, product", "0.29.1")
)


def _trl(path: str, release: str) -> Source:
    return Source(
        "TRL trainers",
        f"trl/{path}, __init__, concatenated_forward, forward, get_batch_loss_metrics, _compute_loss, "
        "compute_ref_log_probs; trl/trainer/utils.py, selective_log_softmax, add_fused_lm_head; trl/models/utils.py, "
        "prepare_deepspeed, prepare_fsdp",
        release,
    )


def _dpo(since: str, tensors: int, reading: Reading, release: str) -> Preference:
    return Preference(TRL, since, "dpo", 0, 1, tensors, 0, READ, _trl("trainer/dpo_trainer.py", release), reading)


def _kto(since: str, tensors: int, reading: Reading, release: str) -> Preference:
    path = "trainer/kto_trainer.py, experimental/kto/kto_trainer.py"
    return Preference(TRL, since, "kto", 1, 2, tensors, 0, READ, _trl(path, release), reading)


def _alone(task: str, path: str, since: str, reading: Reading, release: str) -> Preference:
    """A trainer without a reference model."""
    source = _trl(f"trainer/{path}_trainer.py, experimental/{path}/{path}_trainer.py", release)
    return Preference(TRL, since, task, 0, 0, 6, 0, READ, source, reading)


def _grpo(since: str, reading: Reading, release: str) -> Preference:
    """The reference's log-probabilities, and those of the policy that sampled, are phases of their own before."""
    source = Source(
        "TRL GRPOTrainer",
        "trl/trainer/grpo_trainer.py, _compute_loss, _get_per_token_logps, _get_per_token_logps_and_entropies; "
        "trl/trainer/utils.py, selective_log_softmax, entropy_from_logits; torch/csrc/autograd/functions/tensor.cpp, "
        "CopySlices (division in place)",
        release,
    )
    return Preference(TRL, since, "grpo", 0, 0, 3, 0, READ, source, reading)


_LOG = (Metric.ENTROPY, Metric.COUNTED)
_ROLLED = Reading(Picked.ROWS, Cut.NONE, within=Metric.COUNTED, kept=True)
_HIDDEN = replace(_ROLLED, asked=Asked.HIDDEN)
_PART = Likelihood.PART
_GATHERED = (Metric.GATHERED,)
DPO: tuple[Preference, ...] = (
    Preference(TRL, "1.15", "dpo", 0, 1, 3, 4, FUSED, _trl("trainer/dpo_trainer.py", "1.16.0")),
    _dpo("1.14", 3, Reading(Picked.KERNEL, names=True, last=(Metric.COUNTED,)), "1.14.0"),
    _dpo("1.6", 3, Reading(Picked.ROWS, names=True, last=_LOG), "1.6.0 to 1.13.0"),
    _dpo("0.29", 3, Reading(Picked.ROWS, Cut.COPY, names=True, last=_LOG), "0.29.0 to 1.5.1"),
    _dpo("0.19", 6, _HIDDEN, "0.19.0 to 0.28.0"),
    _dpo("0.18", 6, _ROLLED, "0.18.2"),
    _dpo("0.15", 6, replace(_ROLLED, asked=Asked.CACHE), "0.15.0 to 0.17.0"),
    _dpo("0.14", 6, replace(_ROLLED, picked=Picked.WHOLE, asked=Asked.CACHE), "0.14.0"),
    _dpo("0.12", 6, Reading(Picked.WHOLE, within=Metric.COUNTED, asked=Asked.CACHE), "0.12.0 to 0.13.0"),
    _dpo("0.9.6", 6, Reading(Picked.WHOLE, likelihood=Likelihood.DROPPED, names=True), "0.9.6 to 0.11.4"),
    _dpo("0.7.11", 6, Reading(Picked.WHOLE, names=True), "0.7.11 to 0.9.4"),
    _dpo("", 6, Reading(Picked.WHOLE, names=True, asked=Asked.CACHE, outputs=Outputs.TAKEN), "0.7.0 to 0.7.9"),
)
_LATE = (Metric.ENTROPY, Metric.PICKED_COUNTED)
_PICKED = Reading(Picked.ROWS, within=Metric.PICKED, asked=Asked.CACHE)
_CACHE = Asked.CACHE
_NAMED = Reading(Picked.ROWS, names=True, within=Metric.PICKED, asked=_CACHE, outputs=Outputs.NAMED)
KTO: tuple[Preference, ...] = (
    Preference(TRL, "1.15", "kto", 1, 2, 6, 3, FUSED, _trl("trainer/kto_trainer.py", "1.16.0")),
    _kto("1.14", 6, Reading(Picked.KERNEL, names=True, last=(Metric.PICKED_COUNTED,)), "1.14.0"),
    _kto("1.9", 6, replace(_NAMED, within=Metric.NONE, last=_LATE), "1.9 to 1.13"),
    _kto("1.8", 6, replace(_NAMED, last=(Metric.ENTROPY,)), "1.8.0"),
    _kto("1.7", 6, _NAMED, "1.7.0"),
    _kto("1.6", 6, replace(_NAMED, cut=Cut.COPY), "1.6.0"),
    _kto("0.17", 6, _PICKED, "0.17.0 to 1.5.1"),
    _kto("0.15", 6, Reading(Picked.ROWS, within=Metric.PICKED, before=Before.KEPT, asked=_CACHE), "0.15.2, 0.16.1"),
    _kto("0.11", 6, Reading(Picked.WHOLE, within=Metric.PICKED, before=Before.KEPT, asked=_CACHE), "0.11.4 to 0.14.0"),
    _kto("", 6, Reading(Picked.WHOLE, within=Metric.PICKED, before=Before.READ_LAST, asked=_CACHE), "0.8.6 to 0.10.1"),
)
LIKELY: tuple[Preference, ...] = tuple(
    _alone(task, path, since, reading, release)
    for task, path in (("orpo", "orpo"), ("simpo", "cpo"))
    for since, reading, release in (
        ("0.17", Reading(Picked.ROWS, likelihood=_PART), "0.17.0 to 1.16.0"),
        ("0.15", Reading(Picked.ROWS, likelihood=_PART, last=_GATHERED), "0.15.0 to 0.16.1"),
        ("0.14", Reading(Picked.WHOLE, likelihood=_PART, last=_GATHERED), "0.14.0"),
        ("", Reading(Picked.WHOLE, likelihood=_PART), "0.8.6 to 0.13.0"),
    )
)
_SUFFIX = Reading(Picked.ROWS, Cut.SUFFIX, outputs=Outputs.TAKEN)
_SCALED = replace(_SUFFIX, cut=Cut.SCALED)
_ENTROPIES = (Metric.ENTROPY,)
GRPO: tuple[Preference, ...] = (
    Preference(TRL, "1.15", "grpo", 0, 0, 3, 2, FUSED, _trl("trainer/grpo_trainer.py", "1.16.0")),
    _grpo("1.14", replace(_SUFFIX, picked=Picked.KERNEL), "1.14.0"),
    _grpo("1.10", replace(_SCALED, last=_ENTROPIES, outputs=Outputs.LOCAL), "1.10.0 to 1.13.0"),
    _grpo("1.0", replace(_SUFFIX, cut=Cut.IN_PLACE, last=_ENTROPIES), "1.0.0 to 1.9.0"),
    _grpo("0.23", replace(_SCALED, last=_ENTROPIES), "0.23.0 to 0.29.1"),
    _grpo("0.20", replace(_SCALED, last=(Metric.ENTROPY_ROWS,)), "0.20.0 to 0.22.2"),
    _grpo("0.16", _SCALED, "0.16.0 to 0.19.1"),
    _grpo("0.15", _SUFFIX, "0.15.0 to 0.15.2"),
)
