"""Nodes and links: plausible rows, devices that exist, bandwidths as the standards have them."""

from __future__ import annotations

import pytest

from trainledger.base.places import Place
from trainledger.base.units import GB, GIB
from trainledger.facts.devices import DEVICES, device_from, find_device
from trainledger.facts.links import BY_DEVICE, PEERS, host_link
from trainledger.facts.nodes import NODES, Node


@pytest.mark.parametrize("node", NODES.values(), ids=lambda node: node.name)
def test_a_node_is_plausible(node: Node) -> None:
    host = node.tier(Place.HOST)
    assert host is not None
    assert node.device in DEVICES
    assert host.shared_by == node.ranks in (1, 4, 8)
    assert 400 * GB < host.bytes <= 4096 * GIB
    assert host.bandwidth is None or 100 * GB < host.bandwidth < 1100 * GB
    # the host's memory is slower than all of its devices' together
    assert (host.bandwidth or 0) < node.ranks * (find_device(node.device).bandwidth or 0)


def test_names_of_links_are_names_of_devices() -> None:
    assert set(BY_DEVICE) | set(PEERS) <= set(DEVICES)


@pytest.mark.parametrize(
    ("name", "gigabytes"),
    [("v100-32gb", 15.75), ("a100-80gb", 31.51), ("h100-80gb", 63.02), ("gh200-96gb", 450), ("rtx4060", 15.75)],
)
def test_the_way_to_the_host(name: str, gigabytes: float) -> None:
    link = find_device(name).link
    assert link is not None
    assert round(link.bandwidth / GB, 2) == gigabytes


def test_one_memory_has_no_way_between() -> None:
    assert find_device("mi300a").link is find_device("gb10").link is host_link("nobody's", "unknown") is None


def test_peers_are_no_slower_than_the_host() -> None:
    for name, peers in PEERS.items():
        link = find_device(name).link
        assert link is not None
        assert peers.bandwidth >= link.bandwidth


def test_a_device_of_ones_own_has_bandwidths_and_places() -> None:
    tiers = [
        {"name": "SRAM", "bytes": "256MiB"},
        {"name": "pool", "bytes": "4TiB", "place": "remote", "shared_by": 8},
        {"name": "swap", "bytes": "1TB", "place": "nvme"},
        {"name": "DDR", "bytes": "1TB"},
    ]
    given = {"name": "asic", "memory": "96GiB", "bandwidth": "1.2TB", "link": "64GB", "architecture": "sm90"}
    device = device_from({**given, "tiers": tiers})
    assert device is not None
    assert (device.bandwidth, device.tiers[0].bandwidth, device.architecture) == (1200 * GB, 1200 * GB, "sm90")
    assert device.link is not None
    assert device.link.bandwidth == 64 * GB
    assert [tier.place for tier in device.tiers] == [
        Place.DEVICE, Place.ON_CHIP, Place.REMOTE, Place.NVME, Place.HOST,
    ]  # fmt: skip
