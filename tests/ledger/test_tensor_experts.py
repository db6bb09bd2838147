"""Experts beside tensor parallelism: what autograd keeps on one rank, held against PyTorch itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.ledger.test_experts_permuted import LATENT
from tests.ledger.test_experts_torchtitan import OSS
from tests.ledger.torch_experts import COUNT, HIDDEN, INNER, SMALL, TOKENS, TOP_K, Degrees, Kept, Model, kept, ranks
from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import InputError
from trainledger.facts.dtypes import BF16
from trainledger.ledger.frame import Frame
from trainledger.ledger.rules import lower
from trainledger.ledger.run import run_of
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.tensor_experts import span_of
from trainledger.ledger.tensor_parallel import spread
from trainledger.ledger.walk import run_forward
from trainledger.lines.line import Account
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

EARLY, WINTER, MIDDLE, LATE, NEWEST = "2025-08-22", "0.2.1", "2026-04-20", "2026-06-01", "b5bcd76c66d0"
GATHER = "gathered weights of model.layers"
NAMES = {"bf16": "bfloat16", "fp32": "float32", "int64": "int64", "int32": "int32"}
QWEN: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": HIDDEN, "intermediate_size": 640, "moe_intermediate_size": INNER,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 32, "vocab_size": 1024,
    "num_experts": COUNT, "num_experts_per_tok": TOP_K, "norm_topk_prob": False, "tie_word_embeddings": False,
}  # fmt: skip
DEEP = {
    **LATENT, "hidden_size": HIDDEN, "moe_intermediate_size": INNER, "num_experts": COUNT,
    "num_experts_per_tok": TOP_K,
}  # fmt: skip


def plan_at(version: str, degrees: Degrees, model: dict[str, Any] = QWEN, **parallel: Any) -> Plan:
    tp, ep, each = degrees
    given = {"strategy": "fsdp2", "world": 8, "tp": tp, "ep": ep, "etp": each, "sp": tp > 1, **parallel}
    stack: dict[str, Any] = {"framework": "torchtitan", "versions": {"torchtitan": version, "torch": "2.13.0"}}
    if model is OSS:
        stack["attention"] = "flex"
    return plan_of(model, parallel=given, stack=stack, batch={"sequence": TOKENS * tp})


def of_ledger(plan: Plan) -> Kept:
    """The same storages by the rules, of the last layer's router and experts."""
    model = spread(model_of(plan), plan)
    run = run_of(plan, "sm90")
    frame = Frame(Tape(), run.setting, {}, lambda weight: True, {}, software=run.software)
    dims = (Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, TOKENS), Axis(Dim.HIDDEN, HIDDEN))
    x = frame.tape.inherit(dims, BF16, True, "input")
    frame.names["x"] = x
    ops = model.blocks[-1].ops
    whole = model_of(plan).blocks[-1].ops
    behind = len(whole) - span_of(whole).stop
    first = next(at for at, op in enumerate(ops) if op.name == "mlp.gate")
    lower(frame, ops[first : len(ops) - behind])
    tape = frame.tape
    held = run_forward(tape, frozenset({frame.names["x"]}), saving=True).held
    storages = (tape.storages[one] for one in held if one != EXTERNAL and one not in tape.inherited)
    return Counter((NAMES[one.dtype.name], one.size) for one in storages if one.size > SMALL)


def of_2025(model: Model, x: Any) -> Any:
    """Each rank gathers the sequence; where experts are whole on other ranks it sends rows of its part alone."""
    rows = model.gathered(x).view(-1, HIDDEN)
    scores, chosen = model.routed(rows, False)
    if model.degrees.ep > 1 and model.degrees.each == 1:
        scores, chosen = scores[:TOKENS], chosen[:TOKENS]
    total = model.summed(rows, model.torch.zeros_like(rows), scores, chosen, False)
    return model.scattered(total.view(1, -1, HIDDEN))


def of_winter(model: Model, x: Any) -> Any:
    """Results are put in the order of all tokens, of which a rank that sends its part alone fills its own."""
    rows = model.gathered(x).view(-1, HIDDEN) if model.degrees.tp > 1 else x.view(-1, HIDDEN)
    scores, chosen = model.routed(rows, False)
    if model.degrees.ep > 1 and model.degrees.each == 1:
        chosen = chosen[:TOKENS]
    total = model.unsorted(rows, scores, chosen).view(1, -1, HIDDEN)
    return model.scattered(total) if model.degrees.tp > 1 else total


def of_spring(model: Model, x: Any) -> Any:
    """As of 2025, without padding."""
    rows = model.gathered(x).view(-1, HIDDEN)
    scores, chosen = model.routed(rows, True)
    if model.degrees.ep > 1 and model.degrees.each == 1:
        scores, chosen = scores[:TOKENS], chosen[:TOKENS]
    total = model.summed(rows, model.torch.zeros_like(rows), scores, chosen, True)
    return model.scattered(total.view(1, -1, HIDDEN))


def of_summer(model: Model, x: Any) -> Any:
    """Each rank routes its part of the sequence; sums are as long as all of it."""
    rows = x.view(-1, HIDDEN)
    scores, chosen = model.routed(rows, True)
    total = rows.new_zeros(TOKENS * model.degrees.tp, HIDDEN)
    return model.scattered(model.summed(rows, total, scores, chosen, True).view(1, -1, HIDDEN))


def of_now(model: Model, x: Any) -> Any:
    """Sums are as long as the part, too."""
    rows = x.view(-1, HIDDEN)
    scores, chosen = model.routed(rows, True)
    return model.summed(rows, model.torch.zeros_like(rows), scores, chosen, True).view(1, -1, HIDDEN)


@pytest.mark.parametrize(
    ("version", "run", "degrees"),
    [
        (EARLY, of_2025, Degrees(2, 1, 2)),
        (EARLY, of_2025, Degrees(2, 4, 1)),
        (EARLY, of_2025, Degrees(2, 2, 2)),
        (WINTER, of_winter, Degrees(1, 1, 1)),
        (WINTER, of_winter, Degrees(1, 4, 1)),
        (WINTER, of_winter, Degrees(2, 1, 2)),
        (WINTER, of_winter, Degrees(2, 4, 1)),
        (WINTER, of_winter, Degrees(2, 2, 2)),
        (MIDDLE, of_spring, Degrees(2, 1, 2)),
        (MIDDLE, of_spring, Degrees(2, 4, 1)),
        (MIDDLE, of_spring, Degrees(2, 2, 2)),
        (LATE, of_summer, Degrees(2, 4, 1)),
        (NEWEST, of_now, Degrees(2, 4, 1)),
        (NEWEST, of_now, Degrees(1, 4, 1)),
        (NEWEST, of_spring, Degrees(2, 1, 2)),
    ],
)
def test_autograd_keeps_what_pytorch_keeps(version: str, run: Any, degrees: Degrees) -> None:
    assert of_ledger(plan_at(version, degrees)) == kept(run, degrees)


def shared_of_2025(model: Model, x: Any) -> Any:
    """Shared experts read what was gathered; the sum of both is scattered."""
    rows = model.gathered(x).view(-1, HIDDEN)
    scores, chosen = model.routed(rows, False)
    if model.degrees.ep > 1 and model.degrees.each == 1:
        scores, chosen = scores[:TOKENS], chosen[:TOKENS]
    total = model.summed(rows, model.beside(rows), scores, chosen, False)
    return model.scattered(total.view(1, -1, HIDDEN))


@pytest.mark.parametrize("degrees", [Degrees(2, 1, 2), Degrees(2, 4, 1), Degrees(2, 2, 2)])
def test_autograd_keeps_what_pytorch_keeps_of_shared_experts(degrees: Degrees) -> None:
    assert of_ledger(plan_at(EARLY, degrees, DEEP)) == kept(shared_of_2025, degrees)


@pytest.mark.parametrize("version", [EARLY, NEWEST])
def test_latents_read_the_whole_sequence_once_and_their_narrow_layers_stay_whole(version: str) -> None:
    plan = plan_at(version, Degrees(2, 1, 2), {**DEEP, "q_lora_rank": 48})
    block = spread(model_of(plan), plan).blocks[-1]
    reads = {op.name: op.ins for op in block.ops}
    narrow = [f"self_attn.{name}" for name in ("q_a_proj", "kv_a_proj_with_mqa")]
    assert {reads[name] for name in narrow} == {("whole x",)}
    sizes = {weight.name: weight.shape for weight in block.weights}
    assert sizes["self_attn.kv_a_proj_with_mqa.weight"] == (64 + 32, HIDDEN)
    assert sizes["self_attn.kv_b_proj.weight"] == (4 * (64 + 64) // 2, 64)
    assert sizes["self_attn.q_b_proj.weight"] == (4 * (64 + 32) // 2, 48)
    assert sizes["mlp.gate.weight"] == (COUNT, HIDDEN)
    attention = [line for line in estimate(plan).ledger.lines if "self_attn" in line.name and len(line.dims) > 1]
    assert {line.dims[1].size for line in attention if line.dims[1].dim is Dim.SEQUENCE} == {2 * TOKENS, TOKENS}


def resident(plan: Plan, name: str) -> int:
    """Elements of one rank's part of one layer's weight."""
    lines = [one for one in estimate(plan).ledger.lines if one.account is Account.WEIGHTS and one.name.endswith(name)]
    return lines[0].unit // lines[0].dtype.bytes_of(1)


@pytest.mark.parametrize(
    ("version", "degrees"),
    [
        (EARLY, Degrees(1, 1, 1)),
        (EARLY, Degrees(2, 1, 2)),
        (EARLY, Degrees(2, 4, 1)),
        (EARLY, Degrees(2, 8, 1)),
        (EARLY, Degrees(2, 2, 2)),
        (EARLY, Degrees(4, 2, 4)),
        (NEWEST, Degrees(2, 2, 1)),
        (NEWEST, Degrees(4, 8, 1)),
        (NEWEST, Degrees(1, 4, 1)),
    ],
)
def test_eight_ranks_hold_an_eighth_of_the_experts_each(version: str, degrees: Degrees) -> None:
    assert resident(plan_at(version, degrees), "experts.w1") == COUNT * INNER * HIDDEN // 8


@pytest.mark.parametrize("version", [EARLY, MIDDLE, NEWEST])
def test_more_ranks_of_experts_raise_no_gather(version: str) -> None:
    sizes = []
    for ep in (1, 2, 4, 8):
        lines = estimate(plan_at(version, Degrees(2, ep, 2 if ep == 1 else 1))).ledger.lines
        sizes.append(sum(one.unit for one in lines if "experts.w" in one.name and "(whole)" in one.name))
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0]


@pytest.mark.parametrize(
    ("version", "world", "ep", "columns"),
    [(EARLY, 16, 2, INNER // 8), (EARLY, 8, 2, INNER), (EARLY, 16, 1, INNER), (NEWEST, 16, 1, INNER // 16)],
)
def test_where_ranks_outnumber_experts_their_width_is_sharded(version: str, world: int, ep: int, columns: int) -> None:
    plan = plan_at(version, Degrees(1, ep, 1), world=world)
    ledger = estimate(plan).ledger
    weights = {line.dims[1].size for line in ledger.lines if line.name.endswith("first_moment values of experts.w1")}
    weights |= {line.dims[1].size for line in ledger.lines if line.account is Account.WEIGHTS and "s.w1" in line.name}
    assert weights == {columns}
    turned = [line.name for line in ledger.lines if "rank by rank" in line.name]
    assert bool(turned) is (columns < INNER)


def test_torch_shards_the_width_so() -> None:
    torch = pytest.importorskip("torch")
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard

    with ranks(Degrees(8, 1, 1)) as (mesh, _):
        layer = torch.nn.Module()
        layer.w1 = torch.nn.Parameter(torch.empty(4, INNER, HIDDEN))
        fully_shard(layer, mesh=mesh, shard_placement_fn=lambda weight: Shard(1))
        assert layer.w1.to_local().shape == (4, INNER // 8, HIDDEN)


@pytest.mark.parametrize(
    ("ep", "name", "most"), [(1, GATHER, 1), (2, GATHER.replace("of m", "of routed experts of m"), 2)]
)
def test_experts_on_other_ranks_have_layers_gathered_one_ahead(ep: int, name: str, most: int) -> None:
    ledger = estimate(plan_at(NEWEST, Degrees(1, ep, 1), {**QWEN, "num_hidden_layers": 4})).ledger
    names = [line.name for line in ledger.lines]
    alive, seen = Counter[int](), list[int]()
    for moment, events, _, _ in ledger.segments:
        for event in events:
            alive[abs(event) - 1] += 1 if event > 0 else -1
            if moment == "step 2: forward" and event > 0 and names[event - 1].endswith("tokens by expert"):
                seen.append(sum(alive[at] for at, one in enumerate(names) if one == name))
    assert max(seen) == most


def problems(version: str, degrees: Degrees, model: dict[str, Any] = QWEN, **parallel: Any) -> list[str]:
    with pytest.raises(InputError) as caught:
        estimate(plan_at(version, degrees, model, **parallel))
    return [f"{one.path}: {one.found}" for one in caught.value.problems]


def test_what_cannot_run_is_named() -> None:
    assert problems(NEWEST, Degrees(2, 2, 2)) == ["parallel.etp: found 2 with ep 2"]
    assert problems(NEWEST, Degrees(2, 2, 1), sp=False) == ["parallel.sp: found false with tp 2 and experts"]
    assert problems(EARLY, Degrees(2, 1, 2), {**QWEN, "moe_intermediate_size": 63}) == ["parallel.tp: found 2"]
    odd = {**QWEN, "moe_intermediate_size": 65}
    assert problems(EARLY, Degrees(1, 2, 1), odd, world=16) == ["parallel.ep: found 2, which leaves 8 ranks"]


def test_gpt_oss_is_refused_beside_tp_and_runs_over_ranks_of_experts() -> None:
    assert "parallel.tp: found 2 with experts that have biases" in problems(NEWEST, Degrees(2, 2, 1), OSS)
    names = {line.name for line in estimate(plan_at(NEWEST, Degrees(1, 2, 1), OSS)).ledger.lines}
    assert any("received rows" in name for name in names)
