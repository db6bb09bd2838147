"""Which release of Transformer Engine, and which of its attentions, a plan under Megatron-Core runs."""

from __future__ import annotations

from trainledger.facts.megatron import FAMILY
from trainledger.facts.model_types import MODEL_TYPES
from trainledger.facts.transformer_engine import BACKENDS
from trainledger.ledger.mega import Backend, Engine
from trainledger.ledger.mega_fp8 import quant_of
from trainledger.ledger.mega_routing import installed
from trainledger.model.megatron_own import own_layers
from trainledger.plan.schema import Plan

MADE = "create_attention_mask_in_dataloader"
LEVELS = "hierarchical_context_parallel_sizes"
ALLOWED = "NVTE_ALLOW_NONDETERMINISTIC_ALGO"
WORDS = {"flash": Backend.FLASH, "unfused": Backend.UNFUSED, "eager": Backend.UNFUSED}


def engine_of(plan: Plan, architecture: str) -> Engine | None:
    """How Transformer Engine runs this plan's layers; None where Megatron's own modules do."""
    stack, parallel = plan.stack, plan.parallel
    if own_layers(plan):
        return None
    fixed = str(stack.env.get(ALLOWED)) == "0" or bool(stack.options.get("deterministic_mode"))
    exchange = str(parallel.options.get("cp_comm_type") or "p2p")
    backend, quant = _backend(plan, architecture, fixed), quant_of(plan, architecture)
    levels = parallel.options.get(LEVELS) or (1,)
    return Engine(installed(plan), backend, fixed, parallel.cp, exchange, quant, int(levels[0]))


def number(architecture: str) -> int:
    """90 of sm90; 0 of what has no number."""
    digits = architecture.removeprefix("sm")
    return int(digits) if digits.isdigit() else 0


def _backend(plan: Plan, architecture: str, fixed: bool) -> Backend:
    """The attention that runs where the plan names cuDNN's or none: cuDNN's, where it may."""
    word, have = plan.stack.attention, number(architecture)
    if word in WORDS:
        return WORDS[word]
    keys = {**dict(MODEL_TYPES[FAMILY].defaults), **plan.keys()}
    dropped = bool(keys["attention_dropout"])
    if have <= BACKENDS.oldest or (have >= BACKENDS.newest and fixed and dropped):
        return Backend.FLASH
    return Backend.FUSED
