"""How fast a device reads from and writes to its host's memory, and its peers': bytes per second, each way.

These are what a link carries at most; what copies reach is below it, so that a time over them is a least time.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.sources import Source
from trainledger.base.units import BITS_PER_BYTE, GB


@dataclass(frozen=True, slots=True)
class Link:
    """A way between memories: `bandwidth` in bytes per second, each way."""

    name: str
    bandwidth: int
    source: Source


LANES = 16
TRANSFERS = {3: 8, 4: 16, 5: 32}  # thousand million transfers per second and lane, one bit each, by generation
CODE = (128, 130)  # bits of data in so many bits sent, generations 3 to 5


def _pcie(generation: int, lanes: int = LANES) -> Link:
    source = Source(
        f"PCI Express {generation}.0 x{lanes}: {TRANSFERS[generation]} GT/s a lane, 128b/130b",
        "PCI Express base specification, physical layer",
    )
    data, sent = CODE
    return Link(
        f"PCIe {generation}.0 x{lanes}", TRANSFERS[generation] * GB * lanes * data // sent // BITS_PER_BYTE, source
    )


PCIE_3, PCIE_4, PCIE_5 = _pcie(3), _pcie(4), _pcie(5)
HALF_4, HALF_5 = _pcie(4, 8), _pcie(5, 8)
C2C = Link("NVLink-C2C", 450 * GB, Source("GH200 and GB200: 900 GB/s, both ways together", "GH200, GB200 data sheets"))

# By architecture: what cards of it have, unless named below.
BY_ARCHITECTURE: dict[str, Link] = {
    **dict.fromkeys(("sm60", "sm61", "sm70", "sm75"), PCIE_3),
    **dict.fromkeys(("sm80", "sm86", "sm89"), PCIE_4),
    **dict.fromkeys(("sm90", "sm100", "sm103", "sm120"), PCIE_5),
    **dict.fromkeys(("gfx908", "gfx90a", "gfx1100"), PCIE_4),
    **dict.fromkeys(("gfx942", "gfx950", "gfx1201"), PCIE_5),
    **dict.fromkeys(("gaudi", "gaudi2", "dg2"), PCIE_4),
    **dict.fromkeys(("gaudi3", "pvc"), PCIE_5),
}
# Cards with another one; None: the host's memory is the device's own.
BY_DEVICE: dict[str, Link | None] = {
    **dict.fromkeys(("gh200-96gb", "gh200-144gb", "gb200", "gb300", "gb300-station"), C2C),
    **dict.fromkeys(("gb10", "mi300a"), None),
    "arc-b580": HALF_4,
    "arc-pro-b60": HALF_5,
    "rtx3050-8gb": HALF_4,
    **dict.fromkeys(("rtx4060", "rtx4060ti-8gb", "rtx4060ti-16gb"), HALF_4),
    **dict.fromkeys(("rtx5060", "rtx5060ti-8gb", "rtx5060ti-16gb"), HALF_5),
}


def _nvlink(total: int, sheet: str) -> Link:
    """Of what a data sheet prints for both ways together (GB/s)."""
    return Link("NVLink", total * GB // len(("out", "in")), Source(f"NVLink, {total} GB/s both ways together", sheet))


PEERS: dict[str, Link] = {
    **dict.fromkeys(("v100-16gb", "v100-32gb"), _nvlink(300, "Tesla V100 data sheet, SXM2")),
    "a30": _nvlink(200, "A30 data sheet, bridge of two"),
    **dict.fromkeys(("a100-40gb", "a100-80gb"), _nvlink(600, "A100 data sheet")),
    "a800-80gb": _nvlink(400, "A800 data sheet"),
    **dict.fromkeys(("h100-80gb", "h200", "h20", "h20-141gb"), _nvlink(900, "H100, H200 and H20 data sheets")),
    "h800-80gb": _nvlink(400, "H800 data sheet"),
    "h100-nvl": _nvlink(600, "H100 NVL data sheet, bridge of two"),
    "h200-nvl": _nvlink(900, "H200 NVL data sheet, bridge of two or four"),
    **dict.fromkeys(("gh200-96gb", "gh200-144gb"), _nvlink(900, "GH200 data sheet")),
    **dict.fromkeys(
        ("b100", "b200", "gb200", "b300", "gb300"),
        _nvlink(1800, "HGX B200 and B300, GB200 and GB300 NVL72 data sheets"),
    ),
}


def host_link(name: str, architecture: str) -> Link | None:
    """The link of a device to its host; None where it is not known, or where both share one memory."""
    return BY_DEVICE[name] if name in BY_DEVICE else BY_ARCHITECTURE.get(architecture)
