"""DeepSpeed's wrappers in a whole run: sums that follow from what they keep; what differs by setting and release."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.base.dims import elements
from trainledger.facts.deepspeed import REDUCE_BUCKET
from trainledger.ledger.rank import Ledger, rank_ledger
from trainledger.ledger.registered import slots_of
from trainledger.lines.line import Account, Place
from trainledger.lines.stream import Moment, total
from trainledger.model.build import build
from trainledger.plan.schema import Plan

RANKS = 8
MIXED = {"weights": "bf16", "compute": "bf16", "gradients": "bf16", "reduce": "bf16", "master": "fp32"}
SMALL = {"reduce_bucket_size": 100_000}


def run(strategy: str, version: str = "0.19.8", model: dict[str, Any] = LLAMA, **sections: Any) -> tuple[Plan, Ledger]:
    parallel = {"strategy": strategy, "world": RANKS, "dp": RANKS, **sections.pop("parallel", {})}
    versions = {"torch": "2.14.1", "transformers": "5.24.0"} | ({"deepspeed": version} if version else {})
    stack = {"framework": "deepspeed", "versions": versions, **sections.pop("stack", {})}
    optimizer = {"implementation": "fused", **sections.pop("optimizer", {})}
    given = {"precision": MIXED, "parallel": parallel, "stack": stack, "optimizer": optimizer, **sections}
    plan = plan_of(model, **given)
    return plan, rank_ledger(plan, build(plan.keys()), "sm90", 0)


def sizes(model: dict[str, Any] = LLAMA) -> list[int]:
    return [slot.size for slot in slots_of(build(model))]


def at_end(ledger: Ledger, account: Account) -> int:
    """Bytes of an account that are live after the last event."""
    counts: dict[int, int] = {}
    for _, events, repeat, _ in ledger.segments:
        for event in filter(None, events):
            counts[abs(event) - 1] = counts.get(abs(event) - 1, 0) + (repeat if event > 0 else -repeat)
    assert min(counts.values()) >= 0
    lines = ((ledger.lines[number], count) for number, count in counts.items())
    return sum(line.dtype.bytes_of(elements(line.dims)) * count for line, count in lines if line.account is account)


def moment(ledger: Ledger, name: str) -> Moment:
    return next(one for one in ledger.moments if one.name == name)


def named(ledger: Ledger, start: str) -> list[int]:
    """Elements of the lines whose name begins so."""
    return [elements(line.dims) for line in ledger.lines if line.name.startswith(start)]


@pytest.mark.parametrize("strategy", ["zero1", "zero2"])
def test_stages_1_and_2_keep_flat_weights_and_parts_of_the_rest(strategy: str) -> None:
    _, ledger = run(strategy)
    padded = -(-sum(sizes()) // (2 * RANKS)) * 2 * RANKS
    assert at_end(ledger, Account.WEIGHTS) == 2 * padded
    assert at_end(ledger, Account.MASTER) == 4 * padded // RANKS
    assert at_end(ledger, Account.OPTIMIZER) == 8 * padded // RANKS + 4
    assert at_end(ledger, Account.GRADIENTS) == at_end(ledger, Account.REDUCTION) == 0


def test_stage_3_keeps_parts_padded_one_by_one_and_its_bucket() -> None:
    _, ledger = run("zero3")
    parts = sum(-(-size // RANKS) for size in sizes())
    assert at_end(ledger, Account.WEIGHTS) == 2 * parts
    assert at_end(ledger, Account.MASTER) == 4 * parts
    assert at_end(ledger, Account.OPTIMIZER) == 8 * parts + 4
    assert at_end(ledger, Account.GRADIENTS) == 2 * parts
    assert at_end(ledger, Account.REDUCTION) == 2 * REDUCE_BUCKET.default


def test_the_whole_of_every_parameter_that_touches_the_part_is_kept() -> None:
    _, ledger = run("zero2", parallel={"options": SMALL})
    every, part = sizes(), -(-sum(sizes()) // (2 * RANKS)) * 2
    start, touched = 0, 0
    for size in every:
        touched += size if start < part else 0
        start += size
    assert named(ledger, "gradients of the parameters of this rank") == [touched]


def test_stage_1_holds_buckets_and_gradients_over_micro_batches_and_stage_2_neither() -> None:
    held = {}
    for strategy in ("zero1", "zero2"):
        _, ledger = run(strategy, batch={"accumulation": 2}, parallel={"options": SMALL})
        live = {ledger.lines[line].name for line, _ in moment(ledger, "step 2: forward").live}
        held[strategy] = "reduce bucket" in live, "model.layers.*.mlp.down_proj.weight" in live
    assert held == {"zero1": (True, True), "zero2": (False, False)}


@pytest.mark.parametrize(
    ("options", "buckets"),
    [({}, 1), ({"overlap_comm": True}, 2), ({"contiguous_gradients": False}, 0)],
)
def test_a_bucket_is_one_two_or_none(options: dict[str, Any], buckets: int) -> None:
    _, ledger = run("zero2", parallel={"options": {**SMALL, **options}})
    found = [line.unit for line in ledger.lines if line.name in ("reduce bucket", "second reduce bucket")]
    assert found == [-(-2 * SMALL["reduce_bucket_size"] // 512) * 512] * buckets


def test_a_default_bucket_takes_954_mib() -> None:
    """FORMULAS, section 1: 2 B x reduce_bucket_size."""
    _, ledger = run("zero2")
    (size,) = {line.unit for line in ledger.lines if line.name == "reduce bucket"}
    assert round(size / 2**20) == 954


# DeepSpeed issue 1302, comment of 2023-01-09: memory (MiB) of one run of ZeRO-2 with these settings
PUBLISHED = [
    ({}, 21152),
    ({"reduce_scatter": False}, 21152),
    ({"overlap_comm": False}, 20198),
    ({"reduce_bucket_size": 100_000_000}, 19625),
    ({"reduce_bucket_size": 10_000_000}, 19284),
    ({"contiguous_gradients": False}, 19247),
    ({"contiguous_gradients": False, "overlap_comm": False, "reduce_bucket_size": 10_000_000}, 19247),
]


@pytest.fixture(scope="module")
def overlapped() -> list[float]:
    """The peak (MiB) under each of these settings, where activations, not the update, make it: in releases of that time
    buckets are there before the loss runs backward. The run's model is not published; its settings' differences hold
    for any."""
    found = []
    for options, _ in PUBLISHED:
        given = {"overlap_comm": True, **options}
        batch = {"micro_batch": 16, "sequence": 512}
        _, ledger = run("zero2", "0.9.5", {**LLAMA, "vocab_size": 32000}, batch=batch, parallel={"options": given})
        found.append(max(one.allocated for one in ledger.moments) / 2**20)
    return found


@pytest.mark.parametrize(
    ("more", "less", "published"),
    [(0, 1, 0), (0, 2, 954), (0, 3, 1527), (3, 4, 341), (4, 5, 37), (5, 6, 0)],
    ids=["no reduce_scatter", "no overlap", "bucket 1e8", "bucket 1e7", "not contiguous", "then any bucket"],
)
def test_what_settings_of_zero_2_save_is_published(
    overlapped: list[float], more: int, less: int, published: int
) -> None:
    """FORMULAS, section 1: 2 B x reduce_bucket_size, two of them with overlap_comm; 954, 1527, 341 and 37 MiB. The
    published numbers are of whole blocks, so they differ from tensors' by up to 2 MiB each."""
    assert PUBLISHED[more][1] - PUBLISHED[less][1] == published
    assert abs(overlapped[more] - overlapped[less] - published) <= 2.5


def test_gradients_in_no_bucket_go_in_the_order_in_which_they_come() -> None:
    """With overlap those of other ranks' parts wait for the next reduction, whose stream may be reading them."""
    gone = {}
    for overlap in (False, True):
        options = {**SMALL, "contiguous_gradients": False, "overlap_comm": overlap}
        _, ledger = run("zero2", parallel={"options": options})
        step = [one for one in ledger.segments if one.moment.startswith("step 2: backward of layer 2")]
        deaths = [-event - 1 for segment in step for event in segment.events if event < 0]
        gone[overlap] = [number for number in deaths if ledger.lines[number].use.queued]
    assert len(gone[False]) > 1
    later = gone[True][1:]  # behind what the reduction before had left
    assert later == gone[False][: len(later)]
    assert len(gone[True]) < len(gone[False])


def test_older_releases_make_buckets_before_the_loss_runs_backward() -> None:
    ahead: dict[str, int] = {}
    for version in ("0.18.2", "0.18.3"):
        _, ledger = run("zero2", version)
        events = next(one.events for one in ledger.segments if one.moment == "step 1: backward of the loss")
        born = [ledger.lines[event - 1].name for event in events if event > 0]
        ahead[version] = born.index("reduce bucket")
    assert ahead["0.18.2"] == 0 < ahead["0.18.3"]


def test_the_step_holds_the_gradient_flat_in_both_widths() -> None:
    _, ledger = run("zero2")
    part = -(-sum(sizes()) // (2 * RANKS)) * 2
    live = {ledger.lines[line].name for line, _ in moment(ledger, "step 2: optimizer").live}
    assert {"gradients of this rank's part, joined", "gradient of this rank's part, flat"} <= live
    assert named(ledger, "gradient of this rank's part, flat") == [part]


def test_bf16_optimizer_keeps_fp32_gradients_of_everything() -> None:
    _, ledger = run("zero1", precision={**MIXED, "gradients": "fp32"})
    padded = -(-sum(sizes()) // (2 * RANKS)) * 2 * RANKS
    assert at_end(ledger, Account.GRADIENTS) == 4 * padded
    assert at_end(ledger, Account.WEIGHTS) + at_end(ledger, Account.MASTER) == 2 * padded + 4 * padded // RANKS


def test_stage_0_takes_14_bytes_then_6_more_in_the_step() -> None:
    """FORMULAS, section 7: 14 B a parameter when built, + 2, + 4 in the step with a fused update."""
    _, ledger = run("ddp")
    count = sum(sizes())
    kinds = (Account.WEIGHTS, Account.MASTER, Account.OPTIMIZER)
    scalars = 4 * len(sizes())
    assert sum(at_end(ledger, kind) for kind in kinds) == 14 * count + scalars
    step = moment(ledger, "step 2: optimizer")
    work = (Account.GRADIENTS, Account.STEP)
    gradients = [(line, n) for line, n in step.live if ledger.lines[line].account in work]
    assert 0 <= total(ledger.lines, gradients) - 6 * count <= 512 * 2 * len(sizes())


@pytest.mark.parametrize(("version", "parts"), [("0.17.5", True), ("0.17.6", False)])
def test_stage_0_in_bf16_was_sharded(version: str, parts: bool) -> None:
    _, ledger = run("ddp", version)
    assert (at_end(ledger, Account.MASTER) < 4 * sum(sizes())) is parts


def test_sub_groups_end_with_the_parameter_that_fills_them() -> None:
    parts = [-(-size // RANKS) for size in sizes()]
    limit = parts[0] + parts[1] - 1
    _, ledger = run("zero3", parallel={"options": {"sub_group_size": limit}})
    masters = named(ledger, "master weights, this rank's parts")
    assert masters[0] == parts[0] + parts[1]
    assert sum(masters) == sum(parts)
    _, whole = run("zero3", parallel={"options": {"sub_group_size": sum(parts)}})
    assert named(whole, "master weights, this rank's parts") == [sum(parts)]


def test_auto_follows_the_hidden_size() -> None:
    _, ledger = run("zero3", parallel={"options": {"reduce_bucket_size": "auto"}})
    assert named(ledger, "reduce bucket") == [256 * 256]


def test_small_weights_stay_gathered_between_steps() -> None:
    _, ledger = run("zero3", parallel={"options": {"stage3_param_persistence_threshold": 256}})
    assert at_end(ledger, Account.GATHERED) == 2 * sum(size for size in sizes() if size <= 256)
    _, none = run("zero3", parallel={"options": {"stage3_param_persistence_threshold": 0}})
    assert at_end(none, Account.GATHERED) == 0


def test_mics_shards_within_its_group() -> None:
    _, ledger = run("zero3", "0.19.6", parallel={"options": {"mics_shard_size": 2}})
    assert at_end(ledger, Account.MASTER) == 4 * sum(-(-size // 2) for size in sizes())


def hosted(ledger: Ledger, chosen: Callable[[Account], bool]) -> int:
    assert all(line.place is Place.HOST for line, _ in ledger.host)
    return sum(line.unit * count for line, count in ledger.host if chosen(line.account))


def test_an_offloaded_optimizer_takes_18_bytes_of_the_host_and_nothing_of_the_device() -> None:
    _, ledger = run("zero3", "0.19.4", offload={"optimizer": "cpu"}, optimizer={"implementation": "cpu"})
    parts = sum(-(-size // RANKS) for size in sizes())
    assert hosted(ledger, lambda account: True) == 18 * parts
    assert at_end(ledger, Account.MASTER) == at_end(ledger, Account.OPTIMIZER) == 0
    assert not [line for line in ledger.lines if line.place is Place.HOST]


def test_page_locked_memory_is_a_power_of_two() -> None:
    options = {"offload_optimizer": {"device": "cpu", "pin_memory": True}}
    _, ledger = run("zero2", offload={"optimizer": "cpu"}, parallel={"options": options})
    pinned = [line.unit for line, _ in ledger.host if line.why]
    assert pinned
    assert all(size & (size - 1) == 0 for size in pinned)


@pytest.mark.parametrize(
    ("strategy", "version", "told", "locked"),
    [
        ("zero2", "0.18.2", None, {"master_weights", "weights"}),  # whatever is said
        ("zero2", "0.18.3", None, set()),
        ("zero2", "0.19.4", True, {"master_weights", "weights", "gradients", "gradient_reduction"}),
        ("zero2", "0.19.5", None, {"master_weights", "weights", "gradients", "gradient_reduction"}),
        ("zero3", "0.19.4", None, set()),
        ("zero3", "0.19.5", None, {"gradients"}),
        ("zero3", "0.19.5", False, set()),
    ],
)
def test_what_is_page_locked_by_release(strategy: str, version: str, told: bool | None, locked: set[str]) -> None:
    options = {"offload_optimizer": {"device": "cpu", **({} if told is None else {"pin_memory": told})}}
    _, ledger = run(strategy, version, offload={"optimizer": "cpu"}, parallel={"options": options})
    assert {line.account.value for line, _ in ledger.host if line.why} == locked


def test_nvme_leaves_buffers_in_the_host() -> None:
    options = {"offload_optimizer": {"buffer_count": 5}}
    _, ledger = run("zero3", offload={"optimizer": "nvme"}, parallel={"options": options})
    on_host = [(line.name, count) for line, count in ledger.host if line.place is Place.HOST]
    assert ("swap buffer of the optimizer", 5) in on_host
    assert not [name for name, _ in on_host if name.startswith(("master", "first", "second"))]
    away = {line.account: line.unit for line, _ in ledger.host if line.place is Place.NVME}
    parts = sum(-(-size // RANKS) for size in sizes())
    assert sum(line.unit for line, _ in ledger.host if line.place is Place.NVME) == 16 * parts
    assert away[Account.MASTER] == 4 * parts


@pytest.mark.parametrize("stage", ["zero1", "zero2"])
def test_nvme_is_the_host_where_parameters_are_not_sharded(stage: str) -> None:
    """stage_1_and_2.py offloads to the host for any device but none."""
    host = [run(stage, offload={"optimizer": place})[1].host for place in ("nvme", "cpu")]
    assert host[0] == host[1]
    assert {line.place for line, _ in host[0]} == {Place.HOST}


def test_weights_on_the_host_leave_gathers_on_the_device() -> None:
    _, ledger = run("zero3", "0.19.4", offload={"optimizer": "cpu", "params": "cpu"})
    parts = sum(-(-size // RANKS) for size in sizes())
    assert at_end(ledger, Account.WEIGHTS) == 0
    assert hosted(ledger, lambda account: account is Account.WEIGHTS) == 2 * parts


def test_a_head_that_the_loss_reads_itself_stays_from_the_second_micro_batch_on() -> None:
    live = {}
    for step in ("step 1", "step 2"):
        _, ledger = run("zero3", stack={"loss": "fused-linear", "kernels": ["liger"]}, parallel={"options": SMALL})
        forward = moment(ledger, f"{step}: forward")
        live[step] = "lm_head.weight (whole)" in {ledger.lines[line].name for line, _ in forward.live}
    assert live == {"step 1": False, "step 2": True}


def test_zero_1_and_2_take_the_published_bytes_of_llama_7b() -> None:
    """FORMULAS, section 1: ZeRO-2 on 8 devices held 28.28 GiB in the step and asked for 3.14 GiB more."""
    llama = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32, "vocab_size": 32000, "tie_word_embeddings": False,
    }  # fmt: skip
    _, ledger = run("zero2", model=llama, optimizer={"implementation": "foreach"}, batch={"sequence": 16})
    step = moment(ledger, "step 2: optimizer").allocated / 2**30
    assert 28.24 <= step <= 28.24 + 0.25
    (flat,) = {line.unit for line in ledger.lines if line.name == "gradient of this rank's part, flat"}
    assert round(flat / 2**30, 2) == 3.14


def test_zero_3_of_an_8b_model_holds_two_gigabytes_of_weights_at_the_loss() -> None:
    """FORMULAS, section 7: 2.04e9 B are gathered at the end of forward, from step 2 on."""
    llama = {
        "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "vocab_size": 128256, "tie_word_embeddings": False,
    }  # fmt: skip
    recompute = {"kind": "full", "reentrant": False}
    _, ledger = run("zero3", model=llama, stack={"recompute": recompute}, batch={"sequence": 2048})
    live = moment(ledger, "step 2: loss").live
    held = [(line, count) for line, count in live if ledger.lines[line].account is Account.GATHERED]
    assert round(total(ledger.lines, held) / 1e9, 2) == 2.04


def test_rank_0_of_64_keeps_131_mb_of_a_model_of_1_1_billion() -> None:
    """FORMULAS, section 7: the whole of every parameter that its part touches, instead of 34 MB."""
    tiny = {
        "model_type": "llama", "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000, "tie_word_embeddings": False,
    }  # fmt: skip
    _, ledger = run("zero2", model=tiny, parallel={"world": 64, "dp": 64}, batch={"sequence": 16})
    assert [2 * size // 10**6 for size in named(ledger, "gradients of the parameters of this rank")] == [131]
    assert [2 * size // 10**6 for size in named(ledger, "gradient of this rank's part, flat")] == [34]


def test_fp16_looks_for_overflow_on_the_stream_of_reductions() -> None:
    _, ledger = run("zero3", precision={**MIXED, "weights": "fp16", "compute": "fp16", "gradients": "fp16"})
    assert {line.use.stream > 0 for line in ledger.lines if line.name.startswith("overflow in")} == {True}
    _, bf16 = run("zero3")
    assert not named(bf16, "overflow in")


@pytest.mark.parametrize(
    ("memory", "version", "twice"), [(None, "0.18.7", True), (2**20, "0.18.7", False), (None, "0.18.6", False)]
)
def test_weights_lie_there_twice_while_they_are_flattened_on_a_device_with_room(
    memory: int | None, version: str, twice: bool
) -> None:
    device = {"name": "a100-80gb", "memory": memory} if memory else "a100-80gb"
    _, ledger = run("zero2", version, device=device)
    weights = [(line, n) for line, n in ledger.moments[0].live if ledger.lines[line].account is Account.WEIGHTS]
    assert (total(ledger.lines, weights) > 3 * sum(sizes())) is twice


@pytest.mark.parametrize("strategy", ["zero1", "zero2", "zero3"])
def test_states_follow_the_gradients_that_the_optimizer_is_given(strategy: str) -> None:
    """Adafactor keeps its second moment in the gradient's dtype: fp32 for a flat part, as its master weights are."""
    _, ledger = run(strategy, optimizer={"name": "adafactor", "implementation": None})
    assert at_end(ledger, Account.OPTIMIZER) == pytest.approx(at_end(ledger, Account.MASTER), abs=64)


@pytest.mark.parametrize(("version", "rounded"), [("0.19.3", True), ("0.19.4", False)])
def test_swap_buffers_are_rounded_by_pytorchs_allocator_alone(version: str, rounded: bool) -> None:
    section = {"device": "nvme", "buffer_count": 3, "buffer_size": 300_000}
    _, ledger = run("zero3", version, parallel={"options": {"offload_param": section}})
    buffers = [(line.unit, count) for line, count in ledger.host if line.name.startswith("swap buffers")]
    assert buffers == [(1 << 21 if rounded else 3 * 300_000 * 2, 1)]
