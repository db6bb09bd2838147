"""Routers and experts of DeepSeek, gpt-oss, Llama 4 and Gemma 4, as Transformers and torchtitan run them; what tempers
queries; linear attention; a trained activation function."""

from __future__ import annotations

from typing import TypeAlias, get_args

from trainledger.facts.torchtitan import NAME as TORCHTITAN
from trainledger.ledger import (
    aten,
    curve,
    experts_every,
    experts_torchtitan,
    group_router,
    linear_attention,
    router_low,
    router_scaled,
    sinks,
    tempered,
)
from trainledger.ledger.frame import Frame
from trainledger.ledger.tape import Tape
from trainledger.model import program as p

Chosen: TypeAlias = (
    p.GroupRouter
    | p.Noise
    | p.BestRouter
    | p.LowRouter
    | p.ClampedExperts
    | p.SigmoidRouter
    | p.EveryExpert
    | p.SummedExperts
    | p.Tempered
    | p.Weighted
    | p.ScaledBest
    | p.TrainedCurve
    | p.Stored
    | linear_attention.Linear
)
CHOSEN = get_args(Chosen)


def apply(f: Frame, spec: Chosen, ins: list[int]) -> list[int]:
    """A router's logits, scores and choices, what experts made, their sum, queries, or parts of linear attention;
    nothing where what is there is stored."""
    if isinstance(spec, linear_attention.Linear):
        return linear_attention.apply(f, spec, ins)
    if isinstance(spec, p.Noise):
        return [_noised(f.tape, ins[0])]
    if isinstance(spec, p.Tempered):
        return tempered.tempered(f.tape, spec, ins[0])
    if isinstance(spec, p.Stored):
        f.tape.stored, f.tape.stored_at = ins, len(f.tape.prims)
        return []
    if isinstance(spec, p.TrainedCurve):
        return [curve.xielu(f.tape, ins[0], f.need(spec.positive), f.need(spec.negative))]
    if isinstance(spec, p.Weighted):
        return [router_scaled.weighted(f.tape, ins[0], f.need(spec.weight))]
    if isinstance(spec, p.ScaledBest):
        return router_scaled.best(f.tape, spec, ins[0], f.need(spec.scales))
    if isinstance(spec, p.SigmoidRouter):
        return experts_every.router(f.tape, spec, ins[0], f.need(spec.weight))
    if isinstance(spec, p.SummedExperts):
        return [experts_every.summed(f.tape, ins[0], ins[1])]
    if isinstance(spec, p.EveryExpert):
        return experts_every.experts(f.tape, spec, ins, f.need(spec.gate_up), f.need(spec.down))
    if isinstance(spec, p.LowRouter):
        return router_low.router(f.tape, spec, ins[0], f.need(spec.weight))
    if isinstance(spec, p.GroupRouter):
        return group_router.router(f.tape, spec, ins[0], f.need(spec.weight))
    titan = f.software.framework == TORCHTITAN
    if isinstance(spec, p.BestRouter):
        router = experts_torchtitan.best_router if titan else sinks.best_router
        return router(f.tape, spec, ins[0], f.need(spec.weight), None if spec.bias is None else f.need(spec.bias))
    if titan:
        weights = [f.need(weight) for weight in spec.weights]
        return [experts_torchtitan.clamped(f.tape, ins, *weights, ranks=f.software.experts)]
    return [sinks.clamped(f.tape, spec, ins, f.need)]


def _noised(t: Tape, x: int) -> int:
    """The rows and their noise, which ends with the function that adds it."""
    noise = aten.plain(t, "noise", t.dims[x], t.dtype[x])
    return aten.add(t, x, noise, "rows with noise")
