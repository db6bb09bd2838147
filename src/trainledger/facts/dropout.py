"""Trainers that turn dropout off in the model that they are given, an adapter's too, unless they are told not to: of
every module that is one; what a model's code drops by a function, from a number of its configuration, stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.facts.phases import DISTILL
from trainledger.facts.preference_row import LLAMAFACTORY, SWIFT, TRL
from trainledger.facts.preferences import AGAINST, ALONE, REWARDED
from trainledger.facts.versions import at_least

OPTION = "disable_dropout"
FRAMEWORK = "transformers"  # where these packages' trainers run


@dataclass(frozen=True, slots=True)
class Turns:
    """A package's trainers of these tasks turn dropout off by default, from a release on."""

    package: str
    tasks: tuple[str, ...]
    since: str
    source: Source


def _trl(path: str, release: str) -> Source:
    return Source("TRL disable_dropout", f"trl/trainer/{path}; utils.py, disable_dropout_in_model", release)


TURNS: tuple[Turns, ...] = (
    Turns(TRL, (*AGAINST, *ALONE, DISTILL), "", _trl("{dpo,kto,orpo,cpo,gkd}_{config,trainer}.py", "0.7.4 to 1.16.0")),
    Turns(TRL, (REWARDED,), "0.14", _trl("reward_{config,trainer}.py", "0.14.0 to 1.16.0")),
    Turns(
        LLAMAFACTORY,
        (*AGAINST, *ALONE),
        "",
        Source("LLaMA-Factory disable_dropout", "llamafactory/train/{dpo,kto}/trainer.py, __init__", "0.9.3"),
    ),
    Turns(
        SWIFT,
        (*AGAINST, *ALONE, REWARDED),
        "",
        Source("ms-swift disable_dropout", "swift/trainers/rlhf_trainer/rlhf_mixin.py, __init__", "164e67c, 2025"),
    ),
)


@dataclass(frozen=True, slots=True)
class Modules:
    """Families whose dropout stands in modules of its own."""

    families: frozenset[str]
    source: Source


_CODE = Source(
    "Transformers dropout modules", "transformers/models/*/modeling_*.py: nn.Dropout or functional.dropout", "5.24.0"
)
_BOTH = "bert roberta xlm-roberta camembert distilbert gpt2".split()
HIDDEN = Modules(  # that of hidden states
    frozenset((*_BOTH, *"codegen gpt_bigcode gpt_neox gptj modernbert persimmon phi phi3 stablelm".split())), _CODE
)
SCORES = Modules(frozenset((*_BOTH, "bloom", "falcon")), _CODE)  # that of attention's weights


def turns_off(task: str, framework: str, versions: Mapping[str, str]) -> bool:
    """Whether the trainer of a task turns dropout off where nothing else is said (`versions`: releases by package)."""
    return framework == FRAMEWORK and any(
        row.package in versions and task in row.tasks and at_least(versions[row.package], row.since) for row in TURNS
    )
