"""The node of a plan, and the tiers of memory that a rank's tensors can lie in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from trainledger.base.places import Place
from trainledger.base.problems import Problem, nearest
from trainledger.facts.code_read import OWN_NODE
from trainledger.facts.device_rows import Device, Tier
from trainledger.facts.nodes import NODES, USUAL, Node
from trainledger.plan.beyond import Node as Given
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

KEYS = (  # place, key of its bytes, key of its bandwidth, name
    (Place.HOST, "memory", "memory_bandwidth", "host memory"),
    (Place.NVME, "nvme", "nvme_bandwidth", "NVMe"),
    (Place.REMOTE, "remote", "remote_bandwidth", "remote"),
)


def node_of(plan: Plan) -> Node | None:
    """The plan's node: a known one with what the plan says otherwise laid over, or one of its own; None without."""
    given = plan.node
    if given is None:
        return None
    known = NODES.get((given.name or "").lower())
    ranks = given.ranks or (known.ranks if known else min(USUAL.ranks, degrees(plan).world))
    tiers = [tier for row in KEYS if (tier := _tier(given, row, known, ranks)) is not None]
    source = known.source if known else OWN_NODE
    return Node(given.name or "node", ranks, known.device if known else "", tuple(tiers), source)


def _tier(given: Given, row: tuple[Place, str, str, str], known: Node | None, ranks: int) -> Tier | None:
    place, size, speed, name = row
    base = known.tier(place) if known else None
    capacity, bandwidth = getattr(given, size), getattr(given, speed)
    if base is None and capacity is None:
        return None
    made = base or Tier(name, capacity, bandwidth, ranks, place)
    return replace(made, bytes=capacity or made.bytes, bandwidth=bandwidth or made.bandwidth, shared_by=ranks)


def node_problems(plan: Plan) -> Iterator[Problem]:
    """A name that is no node's and has no memory beside it."""
    given = plan.node
    if given is None:
        return
    name = (given.name or "").lower()
    if name in NODES or given.memory is not None:
        return
    near = nearest(name, NODES)
    fix = f"Did you mean {near}?" if near else "Write node: {ranks: 8, memory: 2TiB}"
    allowed = f"one of {', '.join(NODES)}, or its memory beside it"
    yield Problem("node.name", f"found {given.name!r}" if name else "missing", allowed, fix)


def together(plan: Plan) -> int:
    """Ranks that share one node: as the plan's node has them, else as many as a usual board carries."""
    node = node_of(plan)
    return min(node.ranks if node else USUAL.ranks, degrees(plan).world)


def tiers_of(device: Device | None, node: Node | None) -> tuple[Tier, ...]:
    """Tiers of the device, then those that the node has further; the node's word on the host's memory and what lies
    beyond it stands above the device's."""
    own = device.tiers if device else ()
    beyond = node.tiers if node else ()
    told = {tier.place for tier in beyond}
    return (*(tier for tier in own if tier.place not in told), *beyond)
