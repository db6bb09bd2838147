"""Devices: every row is sourced and plausible, and names resolve as people write them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainledger.base.problems import InputError
from trainledger.base.sources import Basis
from trainledger.base.units import GB, GIB
from trainledger.facts.devices import BY_KEY, DEVICES, Device, _keys, custom_device, device_from, find_device

LABEL = re.compile(r"(\d+) GB ")


def test_there_are_enough_and_all_vendors() -> None:
    assert len(DEVICES) >= 65
    assert {device.vendor for device in DEVICES.values()} == {"NVIDIA", "AMD", "Intel", "Google"}


@pytest.mark.parametrize("device", DEVICES.values(), ids=lambda device: device.name)
def test_a_row_is_plausible(device: Device) -> None:
    match = LABEL.match(device.label)
    assert match is not None, device.label
    label = int(match[1])
    # no card shows more than its label in GiB, and none that is sold loses more than a tenth of the decimal label
    assert 0.88 * label * GB < device.total_bytes <= label * GIB
    assert device.usable_bytes == device.total_bytes
    assert device.basis in (Basis.MEASURED, Basis.ASSUMED)
    assert device.source.where
    assert device.spec.where
    assert device.bandwidth is None or 100 * GB < device.bandwidth < 10_000 * GB
    assert device.tiers[0].bytes == device.total_bytes
    assert device.tiers[0].bandwidth == device.bandwidth


def test_names_never_collide() -> None:
    keys = [key for device in DEVICES.values() for key in _keys(device)]
    assert len(keys) == len(set(keys)) == len(BY_KEY)


# Read off the devices themselves.
@pytest.mark.parametrize(
    ("name", "total"),
    [
        ("t4", 15_655_829_504),
        ("h100-80gb", 84_942_979_072),
        ("a100-40gb", 42_298_834_944),
        ("rtx5090", 33_677_180_928),
        ("rtx-6000-ada", 50_865_307_648),
    ],
)
def test_totals_known_to_the_byte(name: str, total: int) -> None:
    assert find_device(name).total_bytes == total
    assert find_device(name).basis is Basis.MEASURED


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("A100_80GB", "a100-80gb"),
        ("a100 80 gb", "a100-80gb"),
        ("NVIDIA A100-SXM4-80GB", "a100-80gb"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100 80GB PCIe", "a100-80gb-pcie"),
        ("NVIDIA H100 80GB HBM3", "h100-80gb"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL", "h100-nvl"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla T4", "t4"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("4090", "rtx4090"),
        ("2080 Ti", "rtx2080ti"),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx-pro-6000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx-pro-6000-server"),
        ("NVIDIA GH200 480GB", "gh200-96gb"),
        ("NVIDIA B300 SXM6 AC", "b300"),
        ("AMD Instinct MI300X", "mi300x"),
        ("Radeon RX 7900 XTX", "rx7900xtx"),
        ("Intel(R) Arc(TM) B580 Graphics", "arc-b580"),
        ("TPU v5p", "tpu-v5p"),
        ("Gaudi 2", "gaudi2"),
    ],
)
def test_names_as_people_and_drivers_write_them(written: str, name: str) -> None:
    assert find_device(written).name == name


@pytest.mark.parametrize(
    "name",
    "a100-80gb h100-80gb gb200 b200 h100-96gb rtx3090 a10g h800-80gb a100-40gb l40s h200 h100-pcie rtx4090 l4 "
    "v100-16gb mi300x t4".split(),
)
def test_devices_of_published_runs(name: str) -> None:
    assert find_device(name).name == name


def test_a_name_with_several_sizes_is_not_guessed() -> None:
    with pytest.raises(InputError) as raised:
        find_device("a100")
    assert "a100-40gb" in str(raised.value)
    assert "a100-80gb" in str(raised.value)


def test_a_typo_names_the_nearest() -> None:
    with pytest.raises(InputError) as raised:
        find_device("h10-80gb", "plan.device")
    assert "h100-80gb" in str(raised.value)
    assert raised.value.problems[0].path == "plan.device"


@given(st.text(max_size=40))
def test_any_text_finds_or_is_refused(name: str) -> None:
    try:
        device = find_device(name)
    except InputError:
        return
    assert device.name in DEVICES


def test_a_custom_device_keeps_what_its_base_knows() -> None:
    base = find_device("gb200")
    device = custom_device("gb200", 300 * GIB, base)
    assert device.usable_bytes == 300 * GIB == device.tiers[0].bytes
    assert (device.architecture, device.bandwidth) == (base.architecture, base.bandwidth)
    assert device.tiers[1:] == base.tiers[1:]
    assert custom_device("own", GIB).bandwidth is None
    with pytest.raises(InputError):
        custom_device("own", 0)


def test_devices_of_a_plan() -> None:
    assert device_from(None) is None
    assert device_from("t4") is DEVICES["t4"]
    large = device_from({"name": "h100-80gb", "memory": 322_122_547_200})
    assert large is not None
    assert (large.usable_bytes, large.architecture) == (322_122_547_200, "sm90")
    own = device_from(
        {
            "name": "our-chip",
            "memory": "64 GiB",
            "tiers": [
                {"name": "sram", "bytes": "1GiB", "bandwidth": "20TB"},
                {"name": "cxl", "bytes": "2TiB", "shared_by": 4},
            ],
        }
    )
    assert own is not None
    assert own.usable_bytes == 64 * GIB
    assert [tier.name for tier in own.tiers] == ["device memory", "sram", "cxl"]
    assert own.tiers[2].shared_by == 4


def test_every_problem_of_a_plans_device_is_listed() -> None:
    given_ = {"name": "", "memory": "lots", "tires": 1, "tiers": [{"bytes": -1, "shared_by": 0}, 7]}
    with pytest.raises(InputError) as raised:
        device_from(given_)
    paths = {problem.path for problem in raised.value.problems}
    assert paths == {
        "device.name", "device.memory", "device.tires", "device.tiers.0.name", "device.tiers.0.bytes",
        "device.tiers.0.shared_by", "device.tiers.1",
    }  # fmt: skip


def test_a_new_name_without_memory_is_refused() -> None:
    with pytest.raises(InputError):
        device_from({"name": "our-chip"})
    with pytest.raises(InputError):
        device_from({"name": "t4", "memory": float("nan")})
