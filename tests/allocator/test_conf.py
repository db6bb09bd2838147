"""Settings: PYTORCH_CUDA_ALLOC_CONF's text and mappings, as PyTorch reads them, and what is wrong with them."""

from __future__ import annotations

import re
from typing import Any

import pytest

from trainledger.allocator.conf import DEFAULT, Conf, conf_of, parse_conf, read_conf
from trainledger.base.problems import InputError
from trainledger.base.units import GIB, MIB

READ = {
    "": DEFAULT,
    "expandable_segments:True": Conf(expandable=True),
    " expandable_segments : True ,": Conf(expandable=True),
    "expandable_segments:True,expandable_segments:False": DEFAULT,
    "max_split_size_mb:128": Conf(max_split=128 * MIB),
    "max_split_size_mb:128x": Conf(max_split=128 * MIB),  # what follows the number is not looked at
    "max_split_size_mb:-1": DEFAULT,
    "max_non_split_rounding_mb:64": Conf(rounding=64 * MIB),
    "large_segment_size_mb:64": Conf(shared=64 * MIB),
    "garbage_collection_threshold:0.8": Conf(collect=0.8),
    "per_process_memory_fraction:0.5": Conf(fraction=0.5),
    "backend:cudaMallocAsync": Conf(backend="cudaMallocAsync"),
    "pinned_num_register_threads:8,pinned_use_cuda_host_register:True": DEFAULT,
    "roundup_power2_divisions:4": Conf(divisions=(4,) * 16),
    "roundup_power2_divisions:[256:1,512:2,1024:4,>:8]": Conf(divisions=(1,) * 9 + (2, 4) + (8,) * 5),
    "roundup_power2_divisions:[256:1,1024:4]": Conf(divisions=(1,) * 9 + (0, 4) + (0,) * 5),
    "roundup_power2_divisions:[1024:4,256:2,>:8]": Conf(divisions=(4,) * 8 + (2,) + (8,) * 7),
    "roundup_power2_divisions:[>:2,64:8]": Conf(divisions=(8,) * 7 + (2,) * 9),
    "roundup_power2_divisions:[131072:4]": Conf(divisions=(4,) * 16),
    "roundup_power2_divisions:[256:0],max_split_size_mb:20": Conf(max_split=20 * MIB),
}

WRONG = {
    "expandable_segments:true": "'true'; True or False",
    "expandable_segment:True": "Did you mean expandable_segments?",
    "expandable_segments=True": "name:value pairs",
    "max_split_size_mb": "name:value pairs",
    "max_split_size_mb:": "name:value pairs",
    "max_split_size_mb:19": "at least 20",
    "max_split_size_mb:many": "a whole number of MiB",
    "max_split_size_mb:20:30": "a comma",
    "large_segment_size_mb:64,max_split_size_mb:32": "at least large_segment_size_mb, 64",
    "garbage_collection_threshold:1.0": "above 0 and below 1",
    "garbage_collection_threshold:0": "above 0 and below 1",
    "per_process_memory_fraction:1.5": "between 0 and 1",
    "backend:foo": "native or cudaMallocAsync",
    "pinned_num_register_threads:7": "a power of 2",
    "pinned_num_register_threads:256": "a power of 2",
    "roundup_power2_divisions:3": "a power of 2",
    "roundup_power2_divisions:0": "a power of 2",
    "roundup_power2_divisions:[3:2]": "a power of 2",
    "roundup_power2_divisions:[256:3]": "a power of 2",
    "roundup_power2_divisions:[256:1": "a list ends with ]",
    "roundup_power2_divisions:[256]": "a power of 2",
}


@pytest.mark.parametrize("text", READ)
def test_reads(text: str) -> None:
    assert parse_conf(text) == READ[text]


@pytest.mark.parametrize("text", WRONG)
def test_says_what_is_wrong(text: str) -> None:
    with pytest.raises(InputError, match=re.escape(WRONG[text])):
        parse_conf(text)


def test_lists_every_problem() -> None:
    with pytest.raises(InputError) as caught:
        parse_conf("max_split_size_mb:1,backend:x,bogus:3")
    assert [problem.path for problem in caught.value.problems] == [
        "PYTORCH_CUDA_ALLOC_CONF.max_split_size_mb",
        "PYTORCH_CUDA_ALLOC_CONF.backend",
        "PYTORCH_CUDA_ALLOC_CONF",
    ]


BEYOND = re.compile(r"backend|fraction|pinned|segment:|large_segment|:20:30")  # what a build for CPUs does not look at


@pytest.mark.parametrize("text", [text for text in (*READ, *WRONG) if not BEYOND.search(text)])
def test_agrees_with_pytorch(text: str) -> None:
    """PyTorch's own parser, where it is installed, takes and refuses the same texts.

    Its part for CUDA alone (backend, fraction, pinned memory) is not in a build for CPUs, nor is the check of names.
    """
    torch: Any = pytest.importorskip("torch")
    parse = getattr(torch._C, "_accelerator_setAllocatorSettings", None)
    if parse is None:
        pytest.skip("this release has no such call")
    try:
        parse(text)
        taken = True
    except (RuntimeError, ValueError):
        taken = False
    finally:
        parse("expandable_segments:False")
    assert taken == (text in READ)


def test_reads_a_mapping() -> None:
    settings = {"expandable_segments": True, "max_split_size_mb": 128, "garbage_collection_threshold": 0.6}
    assert read_conf(settings) == parse_conf(
        "expandable_segments:True,max_split_size_mb:128,garbage_collection_threshold:0.6"
    )
    texts = ({"roundup_power2_divisions": value} for value in ("[256:1,>:4]", {256: 1, ">": 4}, ["256:1", ">:4"]))
    assert len({read_conf(one) for one in texts}) == 1


def test_mapping_names_its_place() -> None:
    with pytest.raises(InputError, match=r"stack\.allocator\.max_split_size_mb: '5'"):
        read_conf({"max_split_size_mb": 5})


def test_settings_come_before_the_environment() -> None:
    environment = {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64", "PYTORCH_ALLOC_CONF": "max_split_size_mb:32"}
    assert conf_of({}, {}) == DEFAULT
    assert conf_of({}, environment).max_split == 32 * MIB
    assert conf_of({"max_split_size_mb": 20}, environment).max_split == 20 * MIB
    with pytest.raises(InputError, match=r"stack\.env\.PYTORCH_ALLOC_CONF"):
        conf_of({}, {"PYTORCH_ALLOC_CONF": "x"})


@pytest.mark.parametrize(
    ("divisions", "size", "block"),
    [
        ("", 1, 512),
        ("", 512, 512),
        ("", 513, 1024),
        ("4", 1200 * MIB, 1280 * MIB),  # 1024, 1280, 1536, 1792
        ("4", 1280 * MIB, 1280 * MIB),
        ("4", 1024 * MIB, 1024 * MIB),
        ("4", 2048, 2048),  # not above 512 x 4: to 512 bytes
        ("4", 2049, 2560),
        ("4", 2000, 2048),
        ("1", 1200 * MIB + 1, 1200 * MIB + 512),
        ("[256:1,512:2,>:4]", 300 * MIB, 300 * MIB),
        ("[256:1,512:2,>:4]", 600 * MIB, 768 * MIB),
        ("[256:1,512:2,>:4]", 200 * GIB, 224 * GIB),
    ],
)
def test_rounds_up(divisions: str, size: int, block: int) -> None:
    conf = parse_conf(f"roundup_power2_divisions:{divisions}" if divisions else "")
    assert conf.rounded(size) == block


def test_knows_what_it_cannot_simulate() -> None:
    assert parse_conf("backend:native").exact
    assert not parse_conf("backend:cudaMallocAsync").exact


def test_builds_for_amd_have_no_expandable_segments() -> None:
    settings = {"expandable_segments": True}
    assert conf_of(settings, {}, "sm90").expandable
    assert not conf_of(settings, {}, "gfx942").expandable
