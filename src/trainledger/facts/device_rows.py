"""What a device row holds, and how a total that nobody printed is derived from one that somebody did.

Three sizes of one card differ: the label (80 GB), what nvidia-smi prints (81,559 MiB), and what the runtime hands
to a process (torch.cuda.get_device_properties().total_memory, 81,008 MiB). Rows hold the last, since an allocation
fails against it.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainledger.base.places import Place
from trainledger.base.sources import Basis, Source
from trainledger.base.units import GB, GIB, MIB
from trainledger.facts.links import Link, host_link


@dataclass(frozen=True, slots=True)
class Tier:
    """One level of memory that a device can place tensors in.

    `bytes` of it, `bandwidth` in bytes per second (None = not published), shared by `shared_by` devices; what kind of
    memory it is.
    """

    name: str
    bytes: int
    bandwidth: int | None = None
    shared_by: int = 1
    place: Place = Place.HOST


@dataclass(frozen=True, slots=True)
class Reading:
    """A device's total memory in bytes, how that is known, and from where."""

    bytes: int
    basis: Basis
    source: Source


@dataclass(frozen=True, slots=True)
class Share:
    """The share of a nominal size that reaches a process, taken from another card of the same build."""

    visible: int
    nominal: int
    source: Source

    def of(self, nominal_bytes: int) -> Reading:
        """The total derived for a card of that nominal size (bytes); of basis assumed."""
        return Reading(nominal_bytes * self.visible // self.nominal, Basis.ASSUMED, self.source)


@dataclass(frozen=True, slots=True)
class Device:
    """One accelerator as a process sees it.

    `label` is the marketing size. `total_bytes` is what the runtime reports; where nobody printed it, it is derived
    from a sibling card and of basis assumed. `bandwidth` of the device memory is in bytes per second, None where not
    published; `spec` says where label and bandwidth come from. `tiers`: the device memory first, then what else a
    tensor may live in; `link`: the way to the host's memory, None where it is not known or both share one memory. A
    card that presents itself as two devices has one row for one of them.
    """

    name: str
    vendor: str
    architecture: str
    label: str
    total_bytes: int
    basis: Basis
    source: Source
    bandwidth: int | None
    spec: Source
    aliases: tuple[str, ...] = ()
    tiers: tuple[Tier, ...] = ()
    link: Link | None = None

    @property
    def usable_bytes(self) -> int:
        """The bytes a verdict compares with: all that the runtime reports, the process's own context included."""
        return self.total_bytes


# name, architecture, label, total, bandwidth in GB/s, title of the data sheet
Row = tuple[str, str, str, Reading, float | None, str]


def build(vendor: str, table: tuple[Row, ...]) -> tuple[Device, ...]:
    """The devices of a literal table of one vendor."""
    devices = []
    for name, architecture, label, total, gigabytes, sheet in table:
        bandwidth = None if gigabytes is None else round(gigabytes * GB)
        devices.append(
            Device(
                name=name,
                vendor=vendor,
                architecture=architecture,
                label=label,
                total_bytes=total.bytes,
                basis=total.basis,
                source=total.source,
                bandwidth=bandwidth,
                spec=Source(sheet, f"{vendor}, product documentation"),
                tiers=(Tier("device memory", total.bytes, bandwidth, place=Place.DEVICE),),
                link=host_link(name, architecture),
            )
        )
    return tuple(devices)


def at(mebibytes: int, source: Source) -> Reading:
    """A total read off a device, in MiB."""
    return Reading(mebibytes * MIB, Basis.MEASURED, source)


def near(gibibytes: float, source: Source) -> Reading:
    """A total read off a device and printed in GiB to two decimals: off by half of 0.01 GiB at most."""
    return Reading(round(gibibytes * GIB), Basis.MEASURED, source)


def like(reading: Reading, why: str) -> Reading:
    """The total of another card that carries the same memory; of basis assumed."""
    return Reading(reading.bytes, Basis.ASSUMED, Source(why, reading.source.where, reading.source.date))


def issue(repository: str, number: int, says: str) -> Source:
    """A public issue or pull request in which a device's size is printed."""
    return Source(says, f"github.com/{repository}/issues/{number}")


def printed(text: str) -> Source:
    """A device's properties as printed in public repositories: search their text for this string."""
    return Source("device properties printed in public repositories", f"text {text!r}")
