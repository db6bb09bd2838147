"""Routers and experts of DeepSeek and gpt-oss, as Transformers and as torchtitan run them."""

from __future__ import annotations

from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.ledger import experts_torchtitan, group_router, sinks
from trainledger.ledger.frame import Frame
from trainledger.model import program as p


def apply(f: Frame, spec: p.GroupRouter | p.BestRouter | p.ClampedExperts, ins: list[int]) -> list[int]:
    """A router's logits, scores and choices, or the experts' sum."""
    if isinstance(spec, p.GroupRouter):
        return group_router.router(f.tape, spec, ins[0], f.need(spec.weight))
    titan = f.software.framework == TORCHTITAN
    if isinstance(spec, p.BestRouter):
        router = experts_torchtitan.best_router if titan else sinks.best_router
        return router(f.tape, spec, ins[0], (f.need(spec.weight), f.need(spec.bias)))
    weights = [f.need(weight) for weight in spec.weights]
    if titan:
        return [experts_torchtitan.clamped(f.tape, ins, *weights, ranks=f.software.experts)]
    return [sinks.clamped(f.tape, ins, *weights)]
