"""`trainledger devices`: the devices that a plan can name."""

from __future__ import annotations

import json
from dataclasses import asdict

import typer

from trainledger.base.places import Place
from trainledger.base.problems import InputError, Problem
from trainledger.base.units import SHOWN_UNITS, format_size
from trainledger.cli.estimate import UNITS_HELP
from trainledger.facts.devices import DEVICES, Device
from trainledger.facts.links import PEERS
from trainledger.facts.nodes import NODES, Node
from trainledger.show.listing import columns

NODE_HEADER = ("name", "ranks", "device", "host memory", "bandwidth", "NVMe", "source")
HEADER = ("name", "memory", "usable", "basis", "architecture", "vendor", "source")
_SIZES = [HEADER.index(name) for name in ("memory", "usable")]


def devices(
    search: str = typer.Option("", "--search", "-s", help="Only those in whose name or kind every word occurs."),
    as_json: bool = typer.Option(False, "--json", help="Print for programs: sizes in bytes."),
    units: str = typer.Option("GiB", "--units", help=UNITS_HELP),
    nodes: bool = typer.Option(False, "--nodes", help="The nodes that a plan's `node` can name instead."),
) -> None:
    """The devices a plan can name, with their memory.

    `memory` is the size on the label, `usable` what the runtime gives to a process; `--json` has bandwidths and links
    too. Another device needs no row: write `device: {name: mine, memory: 80GiB}` in the plan, or name a file.
    """
    if units not in SHOWN_UNITS:
        raise InputError([Problem("--units", f"{units!r}", f"allowed are {', '.join(SHOWN_UNITS)}")])
    if nodes:
        _list_nodes(search, as_json, units)
        return
    found = [device for device in DEVICES.values() if _matches(device, search)]
    if not found:
        raise InputError([Problem("--search", f"no device matches {search!r}", "leave it out to list all")])
    if as_json:
        typer.echo(json.dumps({"devices": [_as_data(device) for device in found]}, indent=1))
    else:
        typer.echo(columns(HEADER, [_row(device, units) for device in found], right=_SIZES))


def _matches(device: Device, search: str) -> bool:
    text = " ".join((device.name, device.vendor, device.architecture, *device.aliases)).lower()
    return all(word in text for word in search.lower().split())


def _row(device: Device, units: str) -> tuple[str, ...]:
    usable = format_size(device.usable_bytes, units)
    return (
        device.name, device.label, usable, device.basis.value, device.architecture, device.vendor, str(device.source)
    )  # fmt: skip


def _list_nodes(search: str, as_json: bool, units: str) -> None:
    words = search.lower().split()
    found = [node for node in NODES.values() if all(word in f"{node.name} {node.device}" for word in words)]
    if not found:
        raise InputError([Problem("--search", f"no node matches {search!r}", "leave it out to list all")])
    if as_json:
        typer.echo(json.dumps({"nodes": [asdict(node) for node in found]}, indent=1))
    else:
        rows = [_node_row(node, units) for node in found]
        typer.echo(columns(NODE_HEADER, rows, right=[1, *(NODE_HEADER.index(name) for name in NODE_HEADER[3:6])]))


def _node_row(node: Node, units: str) -> tuple[str, ...]:
    host, flash = node.tier(Place.HOST), node.tier(Place.NVME)
    speed = f"{format_size(host.bandwidth, units)}/s" if host and host.bandwidth else "not published"
    return (
        node.name, str(node.ranks), node.device, format_size(host.bytes if host else 0, units), speed,
        format_size(flash.bytes, units) if flash else "none", str(node.source),
    )  # fmt: skip


def _as_data(device: Device) -> dict[str, object]:
    peers = PEERS.get(device.name)
    return {
        **asdict(device),
        "usable_bytes": device.usable_bytes,
        "peers": asdict(peers) if peers else None,
    }
