"""Attention of a block on a tape: which kernel runs it, and what lies around it where ranks share a sequence."""

from __future__ import annotations

from dataclasses import replace

from trainledger.base.dims import Dim
from trainledger.facts.kernels_attention import Kernel
from trainledger.ledger import attention, masks, ring, rules_parallel, rules_torchtitan, sinks, ulysses, written
from trainledger.ledger.frame import Frame
from trainledger.ledger.fused import Site
from trainledger.model.operations_parallel import Gathered
from trainledger.model.program import Attention, HighAttention, SinkAttention, WrittenAttention


def attention_of(f: Frame, spec: Attention, q: int, k: int, v: int) -> int:
    """The result, [batch, sequence, heads, head dim]."""
    if f.software.exchanges:
        ranks = f.software.context
        heads = replace(spec, heads=spec.heads // ranks, kv_heads=max(spec.kv_heads // ranks, 1))
        return ulysses.around(f, (q, k, v), ranks, lambda qkv: _fused(f, heads, qkv, None))
    mask = masks.of_layer(f, spec)
    choice = f.choice(spec)
    if choice.kernel is Kernel.EAGER:
        if isinstance(spec, HighAttention):
            out, weights = written.high(f.tape, (q, k, v), spec, mask)
        elif isinstance(spec, SinkAttention):
            out, weights = sinks.eager(f.tape, (q, k, v), spec, mask, f.need(spec.sinks))
        else:
            out, weights = attention.eager(f.tape, (q, k, v), spec, mask, named=masks.adds(f))
        if masks.returns(f):
            f.names["attention weights"] = weights  # so the layer holds them until it ends
        return out
    ranks, first = f.software.context, len(f.tape.prims)
    if choice.kernel is Kernel.FLEX and ranks > 1:
        k, v = (rules_parallel.apply(f, Gathered(ranks, Dim.SEQUENCE), x) for x in (k, v))
        ranks = 1  # which has them all now
    out = ring.around(f.tape, _fused(f, spec, (q, k, v), mask), first, ranks)
    return rules_torchtitan.sunk(f.tape, out, f.need(spec.sinks)) if isinstance(spec, SinkAttention) else out


def results_of(f: Frame, spec: Attention, qkv: tuple[int, int, int]) -> list[int]:
    """The result, and of attention that its class writes out itself what the code names until its module returns."""
    if not isinstance(spec, WrittenAttention):
        return [attention_of(f, spec, *qkv)]
    mask = masks.of_layer(f, spec)
    if f.choice(spec).kernel is not Kernel.EAGER:
        return [_fused(f, spec, qkv, mask)] * len(written.LEFT)
    found, weights = written.eager(f, spec, qkv, mask)
    f.names["attention weights"] = weights
    f.tape.returned = [weights]
    return found


def _fused(f: Frame, spec: Attention, qkv: tuple[int, int, int], mask: int | None) -> int:
    choice = f.choice(spec)
    splits = not (spec.dropout and f.setting.training)
    site = Site(choice.kernel, f.setting.torch, f.setting.architecture, splits)
    call = attention.Call(mask, site, choice.repeats, choice.dense or masks.copies(f))
    return attention.handed(f.tape, qkv, spec, call)
