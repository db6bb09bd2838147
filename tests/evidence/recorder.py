"""A snapshot as torch.cuda.memory would write it, of a stream that the simulator runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from trainledger.allocator.blocks import Block
from trainledger.allocator.conf import parse_conf
from trainledger.allocator.replay import Given, prepared
from trainledger.allocator.simulator import Simulator
from trainledger.allocator.state import SegmentState, state_of
from trainledger.allocator.stream import Kind, Stream

Snapshot = dict[str, Any]


def record(stream: Stream, settings: str = "", capacity: int | None = None, cut: int = 0) -> Snapshot:
    """The snapshot after a stream, its trace without the first `cut` entries."""
    simulator = prepared(parse_conf(settings), Given(capacity))
    trace: list[dict[str, Any]] = []
    asked: dict[int, int] = {}
    for kind, ident, size, where in stream:
        waiting = [(block, block.address) for block in waits(simulator)]
        before = pages(simulator)
        if kind == Kind.FREE:
            block = simulator.blocks[ident]
            trace.append(entry("free_requested", block.address, asked[id(block)], block.pool.stream))
            waiting.append((block, block.address))
        if not simulator.step(kind, ident, size, where):
            break
        still = {id(block) for block in waits(simulator)}
        for block, address in waiting:
            if id(block) not in still:
                trace.append(entry("free_completed", address, asked[id(block)], block.pool.stream))
        trace += changes(simulator, before)
        if kind == Kind.ALLOC:
            block = simulator.blocks[ident]
            asked[id(block)] = size
            trace.append(entry("alloc", block.address, size, where))
    segments = [segment(one, simulator.conf.expandable) for one in state_of(simulator)]
    settings_found = {"PYTORCH_CUDA_ALLOC_CONF": settings, "expandable_segments": simulator.conf.expandable}
    return {"segments": segments, "device_traces": [trace[cut:]], "allocator_settings": settings_found}


def entry(action: str, address: int, size: int, stream: int) -> dict[str, Any]:
    """One entry of the trace."""
    return {"action": action, "addr": address, "size": size, "stream": stream, "frames": [], "time_us": 0}


def waits(simulator: Simulator) -> list[Block]:
    """Blocks that wait for a stream, each once."""
    found = {id(block): block for blocks in simulator.events.values() for block in blocks}
    found |= {id(block): block for block in simulator.ready}
    return list(found.values())


def pages(simulator: Simulator) -> dict[tuple[int, int], int]:
    """Address and bytes of every segment, or mapped page, with its stream."""
    found = {}
    for one in state_of(simulator):
        page = simulator.pool(one.stream, one.small).page if simulator.conf.expandable else one.size
        for address in range(one.address, one.address + one.size, page):
            found[address, page] = one.stream
    return found


def changes(simulator: Simulator, before: dict[tuple[int, int], int]) -> Iterator[dict[str, Any]]:
    """Entries for what was given back to the device, then for what was taken from it."""
    after = pages(simulator)
    gone, new = ("unmap", "map") if simulator.conf.expandable else ("free", "alloc")
    for address, size in sorted(before.keys() - after.keys()):
        yield entry(f"segment_{gone}", address, size, before[address, size])
    for address, size in sorted(after.keys() - before.keys()):
        yield entry(f"segment_{new}", address, size, after[address, size])


def segment(one: SegmentState, expandable: bool) -> dict[str, Any]:
    """A segment at the end."""
    states = [
        "active_allocated" if piece.ident else "active_awaiting_free" if piece.waits else "inactive"
        for piece in one.pieces
    ]
    return {
        "device": 0,
        "address": one.address,
        "total_size": one.size,
        "stream": one.stream,
        "segment_type": "small" if one.small else "large",
        "segment_pool_id": (0, 0),
        "is_expandable": expandable,
        "blocks": [{"size": piece.size, "state": state} for piece, state in zip(one.pieces, states, strict=True)],
    }
