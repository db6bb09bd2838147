"""`trainledger devices` and `models`: both forms of output, the search, and what is refused."""

from __future__ import annotations

import json

import pytest

from trainledger.cli.main import main
from trainledger.facts.catalogue import names
from trainledger.facts.devices import DEVICES


def test_devices_lists_all(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["devices"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(DEVICES)


def test_devices_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--json", "--search", "h100"]) == 0
    shown = json.loads(capfd.readouterr().out)["devices"]
    assert {device["name"]: device["usable_bytes"] for device in shown} == {
        name: device.usable_bytes for name, device in DEVICES.items() if name in {one["name"] for one in shown}
    }
    assert "h100-80gb" in {device["name"] for device in shown}


def test_devices_in_another_unit(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "-s", "t4", "--units", "B"]) == 0
    assert f"{DEVICES['t4'].usable_bytes:,} B" in capfd.readouterr().out


def test_models_lists_all(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["models"]) == 0
    lines = capfd.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(names())


def test_models_as_json(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json", "--search", "llama-3.2-1b"]) == 0
    (model,) = json.loads(capfd.readouterr().out)["models"]
    assert (model["name"], model["parameters"]) == ("llama-3.2-1b", 1_235_814_400)
    assert model["config"]["hidden_size"] == 2048
    assert model["source"]["where"].startswith("https://")


@pytest.mark.parametrize(
    "arguments",
    [["devices", "--search", "no such thing"], ["models", "--search", "no such thing"], ["devices", "--units", "kg"]],
)
def test_what_is_refused(arguments: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    shown = capfd.readouterr()
    assert shown.out == ""
    assert arguments[1] in shown.err


def test_nodes_and_links(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["devices", "--nodes", "--search", "dgx h100", "--json"]) == 0
    (node,) = json.loads(capfd.readouterr().out)["nodes"]
    assert (node["ranks"], node["device"], [tier["place"] for tier in node["tiers"]]) == (
        8, "h100-80gb", ["host", "nvme"],
    )  # fmt: skip
    assert main(["devices", "--nodes"]) == 0
    assert "p5.48xlarge" in capfd.readouterr().out
    assert main(["devices", "--nodes", "--search", "no such node"]) == 2
    capfd.readouterr()
    assert main(["devices", "--search", "h100-80gb", "--json"]) == 0
    device = next(one for one in json.loads(capfd.readouterr().out)["devices"] if one["name"] == "h100-80gb")
    assert device["link"]["name"] == "PCIe 5.0 x16"
    assert device["peers"]["bandwidth"] == 450 * 10**9
