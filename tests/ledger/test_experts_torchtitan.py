"""torchtitan's experts: what autograd keeps of them, and what adding them up takes."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.plans import plan_of
from trainledger.answer.estimate import estimate
from trainledger.base.dims import Axis, Dim
from trainledger.base.problems import InputError
from trainledger.base.sources import Basis
from trainledger.facts.dtypes import BF16
from trainledger.facts.kernels import SORTED_SCATTER
from trainledger.ledger.experts_torchtitan import experts, router
from trainledger.ledger.tape import EXTERNAL, Tape
from trainledger.ledger.walk import run_forward
from trainledger.lines.line import Account
from trainledger.model.build import model_of
from trainledger.model.operations import ActKind
from trainledger.model.operations_experts import Experts, Router
from trainledger.model.weights import Weight

TOKENS, WIDTH, INNER, COUNT, TOP_K = 256, 128, 64, 8, 2
ROWS = TOKENS * TOP_K
Kept = Counter[tuple[str, int]]
MOE = {
    "model_type": "qwen3_moe", "hidden_size": 256, "intermediate_size": 640, "moe_intermediate_size": 64,
    "num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 1024,
    "num_experts": 8, "num_experts_per_tok": 2, "norm_topk_prob": True, "tie_word_embeddings": False,
}  # fmt: skip


def written() -> tuple[Tape, int]:
    tape = Tape()
    tokens, width = (Axis(Dim.BATCH, 1), Axis(Dim.SEQUENCE, TOKENS)), Axis(Dim.HIDDEN, WIDTH)
    x = tape.inherit((*tokens, width), BF16, True, "input")

    def parameter(*sizes: int) -> int:
        dims = tuple(Axis(dim, size) for dim, size in zip((Dim.EXPERTS, Dim.FFN, Dim.HIDDEN), sizes, strict=False))
        return tape.outside(dims, BF16, True)

    gate = parameter(COUNT, WIDTH)
    first, second, third = (parameter(COUNT, *sizes) for sizes in ((INNER, WIDTH), (INNER, WIDTH), (WIDTH, INNER)))
    logits, scores, chosen = router(tape, Router(Weight("gate", ()), TOP_K, True, False), x, gate)
    stack = Experts(TOP_K, Weight("w1", ()), Weight("w2", ()), ActKind.SILU, Weight("w3", ()))
    out = experts(tape, stack, [x, scores, chosen], (first, second, third))()
    tape.end([x, logits, scores, chosen])
    return tape, out


def of_torch() -> Kept:
    """Storages that PyTorch's autograd keeps of the same, run on the CPU."""
    torch = pytest.importorskip("torch")
    functional = torch.nn.functional
    x = torch.randn(1, TOKENS, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    gate = torch.randn(COUNT, WIDTH, dtype=torch.bfloat16, requires_grad=True)
    sizes = ((COUNT, INNER, WIDTH), (COUNT, INNER, WIDTH), (COUNT, WIDTH, INNER))
    first, third, second = (torch.randn(*one, dtype=torch.bfloat16, requires_grad=True) for one in sizes)
    own = {one.untyped_storage().data_ptr() for one in (x, gate, first, second, third)}
    saved: dict[int, tuple[str, int]] = {}
    held = []

    def keep(one: Any) -> Any:
        store = one.untyped_storage()
        held.append(store)
        if store.data_ptr() not in own and store.nbytes() > SMALL:
            saved[store.data_ptr()] = (str(one.dtype).removeprefix("torch."), store.nbytes())
        return one

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda one: one):
        rows = x.view(-1, WIDTH)
        probs = functional.softmax(functional.linear(rows.float(), gate.float()), dim=1)
        chosen = torch.topk(probs, k=TOP_K, dim=-1, sorted=False)[1]
        scores = probs.gather(dim=1, index=chosen)
        scores = scores / (scores.sum(dim=-1, keepdim=True) + 1e-20) * 1.0
        counts = torch.bincount(chosen.view(-1), minlength=COUNT)
        place = torch.argsort(chosen.view(-1), stable=True)
        score = scores.view(-1)[place]
        token = place // TOP_K
        routed = rows[token]
        ends = torch.cumsum(counts, dim=0, dtype=torch.int32)

        def product(value: Any, weight: Any) -> Any:
            return torch._grouped_mm(value, weight.transpose(-2, -1), offs=ends)

        inner = functional.silu(product(routed, first)) * product(routed, third)
        out = (product(inner, second).float() * score.reshape(-1, 1)).to(x.dtype)
        total = torch.zeros_like(rows).scatter_add(0, token.reshape(-1, 1).expand(-1, WIDTH), out)
    assert total.requires_grad
    return Counter(saved.values())


SMALL = 64  # bytes: where groups end
NAMES = {"bf16": "bfloat16", "fp32": "float32", "int64": "int64"}


def test_autograd_keeps_what_pytorch_keeps() -> None:
    tape, out = written()
    held = run_forward(tape, frozenset({out}), saving=True).held
    kept = (tape.storages[one] for one in held if one != EXTERNAL and one not in tape.inherited)
    sizes = Counter((NAMES[one.dtype.name], one.size) for one in kept if one.size > SMALL and one.dtype.name in NAMES)
    assert sizes == of_torch()


def test_adding_up_sorts_a_number_of_every_element() -> None:
    tape, _ = written()
    (scatter,) = (prim for prim in tape.prims if prim.kind == "scatter_add")
    work = [tape.storages[one] for one in scatter.work]
    assert [one.size for one in work] == [8 * ROWS * WIDTH] * len(SORTED_SCATTER.arrays)
    assert {one.basis for one in work} == {Basis.ASSUMED}


def titan(version: str) -> Any:
    return plan_of(MOE, stack={"framework": "torchtitan", "versions": {"torchtitan": version}})


def test_the_gates_and_ups_weights_stand_apart() -> None:
    plan = titan("1690e0ae")
    names = {one.name: one.shape for one in model_of(plan).blocks[0].weights if "experts" in one.name}
    assert names == {
        "mlp.experts.w1": (8, 64, 256),
        "mlp.experts.w3": (8, 64, 256),
        "mlp.experts.down_proj": (8, 256, 64),
    }
    assert estimate(plan).parameters.total == estimate(plan_of(MOE)).parameters.total


def test_versions_that_added_experts_up_otherwise_are_refused() -> None:
    with pytest.raises(InputError, match=r"stack\.versions\.torchtitan"):
        model_of(titan("0.1.0"))


OSS = {
    "model_type": "gpt_oss", "hidden_size": 256, "intermediate_size": 96, "num_hidden_layers": 3, "vocab_size": 1024,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64, "num_local_experts": 8,
    "num_experts_per_tok": 2, "tie_word_embeddings": False,
}  # fmt: skip


def sunk(version: str = "1690e0ae", attention: str = "flex", recompute: str = "none") -> Any:
    stack = {"framework": "torchtitan", "versions": {"torchtitan": version}, "attention": attention}
    return plan_of(OSS, stack={**stack, "recompute": recompute}, batch={"sequence": 256})


def test_gpt_oss_holds_all_of_its_parameters() -> None:
    assert sum(weight.elements for weight in weights(sunk())) == sum(
        weight.elements for weight in weights(plan_of(OSS))
    )


@pytest.mark.parametrize("recipe", ["tensorwise", "rowwise"])
def test_a_bias_is_added_to_a_product_in_8_bits(recipe: str) -> None:
    """By itself: its gradient is there, and a sum as wide as the product."""
    plan = sunk()
    low = {"weights": "fp32", "gradients": "fp32", "compute": "fp8", "fp8": {"recipe": recipe}}
    found = estimate(
        plan_of(OSS, stack=plan.stack.model_dump(exclude_unset=True), precision=low, batch={"sequence": 256})
    )
    names = {line.name for line in found.ledger.lines}
    assert "model.layers.*.self_attn.q_proj.bias" in {
        one.name for one in found.ledger.lines if one.account is Account.GRADIENTS
    }
    assert "model.layers.*.self_attn.q_proj: with bias" in names


def weights(plan: Any) -> list[Weight]:
    return [one for block in model_of(plan).blocks for one in block.weights for _ in block.layers]


def test_experts_with_biases_keep_a_rows_bias_and_product() -> None:
    """The gathered biases of a row are as wide as its product: twice the expert's width, then the hidden state's."""
    rows = 256 * 2
    made = {line.unit for line in estimate(sunk()).ledger.lines if line.name.endswith("experts: biases by expert")}
    assert made == {rows * 2 * 96 * 2, rows * 256 * 2}


def test_sinks_scale_what_attention_made() -> None:
    names = {line.name for line in estimate(sunk()).ledger.lines if "self_attn" in line.name}
    assert any(name.endswith("scaled") for name in names)
    assert any(name.endswith("sigmoid") for name in names)
    assert not any("attention weights" in name for name in names)


def test_gpt_oss_recomputes_whole_layers() -> None:
    none, full = (estimate(sunk(recompute=kind)).peak.allocated.expected for kind in ("none", "full"))
    assert full < none


@pytest.mark.parametrize(
    "given, path",
    [({"attention": "sdpa"}, "stack.attention"), ({"version": "2025-09-01"}, "stack.versions.torchtitan")],
)
def test_gpt_oss_of_2025_or_with_another_kernel_is_refused(given: dict[str, str], path: str) -> None:
    with pytest.raises(InputError) as caught:
        estimate(sunk(**given))
    assert [one.path for one in caught.value.problems] == [path]


DEEPSEEK = {
    "model_type": "deepseek_v3", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 4, "intermediate_size": 512, "vocab_size": 1024, "tie_word_embeddings": False,
    "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 128, "n_shared_experts": 2,
    "first_k_dense_replace": 1, "q_lora_rank": None, "kv_lora_rank": 128, "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32, "v_head_dim": 64,
}  # fmt: skip


@pytest.mark.parametrize(
    ("version", "before"), [("2025-09-22", False), ("2025-09-23", True), ("0.2.2", True), ("2026-05-20", False)]
)
def test_shared_experts_run_before_the_routed_ones_are_added_up(version: str, before: bool) -> None:
    """Held against torchtitan 0.2.2 on PyTorch's own allocator: what they save is there at a layer's largest."""
    stack = {"framework": "torchtitan", "versions": {"torchtitan": version}, "attention": "sdpa", "recompute": "none"}
    made = estimate(plan_of(DEEPSEEK, stack=stack, parallel={"strategy": "fsdp2", "dp": 2})).ledger
    forward = [one for one in made.segments if one.moment == "step 1: forward"]
    names = [made.lines[event - 1].name for one in forward for event in one.events if event > 0]
    shared = next(at for at, name in enumerate(names) if "shared_experts.down_proj: output" in name)
    summed = next(at for at, name in enumerate(names) if "mlp.experts: sum over experts" in name)
    assert (shared < summed) is before
