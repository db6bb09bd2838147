"""Compiled layers within a memory budget."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.ledger.gated import INNER, TOKENS, WIDTH
from tests.ledger.test_inductor import layer
from tests.plans import plan_of
from trainledger.answer.check import check
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.problems import InputError
from trainledger.importers.outside import read_any
from trainledger.ledger.budgeted import budget_of, kept_within
from trainledger.lines.line import Account

DENSE = {
    "model_type": "llama", "hidden_size": 256, "intermediate_size": 640, "num_hidden_layers": 4, "head_dim": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 1024, "tie_word_embeddings": False,
}  # fmt: skip


def titan(recompute: Any, compiled: bool = True) -> Any:
    stack = {"framework": "torchtitan", "compile": compiled, "recompute": recompute}
    low = {"weights": "fp32", "gradients": "fp32", "compute": "bf16", "reduce": "fp32"}
    parallel = {"strategy": "fsdp2", "world": 2}
    return plan_of(DENSE, stack=stack, precision=low, parallel=parallel, batch={"sequence": 512})


def kept(found: Estimate) -> int:
    lines = found.ledger.lines
    moment = max((one for one in found.ledger.moments if one.name.startswith("step 2")), key=lambda one: one.allocated)
    return sum(lines[at].unit * copies for at, copies in moment.live if lines[at].account is Account.ACTIVATIONS)


@pytest.mark.parametrize(
    ("policy", "share"),
    [
        ("memory budget 0.5", 0.5), ("memory budget .25", 0.25), ("Memory budget 0.5", None),
        ("memory budget 1", 1.0), ("memory budget 1.5", None),
        ("memory budget", None), ("op", None), (None, None),
    ],
)  # fmt: skip
def test_policies(policy: str | None, share: float | None) -> None:
    assert budget_of(policy) == share


def test_the_ends_are_whole_layers_again_and_nothing_again() -> None:
    ends = [{"kind": "selective", "policy": f"memory budget {share}"} for share in (0, 1)]
    none, all_of_it = (kept(estimate(titan(one))) for one in ends)
    assert none == kept(estimate(titan({"kind": "full", "reentrant": False})))
    assert all_of_it == kept(estimate(titan("none")))


def test_more_memory_keeps_more_and_never_more_than_its_share() -> None:
    shares = [at / 10 for at in range(11)]
    found = [kept(estimate(titan({"kind": "selective", "policy": f"memory budget {one}"}))) for one in shares]
    assert all(first <= second for first, second in pairwise(found))
    least, most = found[0], found[-1]
    assert all(size - least <= share * most for size, share in zip(found, shares, strict=True))
    assert least < found[5] < most


@pytest.mark.parametrize("share", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])
def test_what_is_kept_is_what_pytorchs_partitioner_keeps(share: float) -> None:
    """Of a gated feed-forward: bytes of the products that its forward hands on."""
    tape, _, _ = layer()
    products = kept_within(tape, share)
    mine = sum(tape.storages[tape.store[value]].size for at in products for value in tape.prims[at].outs)
    assert mine == of_torch(share)


def of_torch(share: float) -> int:
    """Bytes of products that PyTorch's own partitioner keeps within a budget, run on the CPU."""
    torch = pytest.importorskip("torch")
    compile_ = pytest.importorskip("functorch.compile")
    config, functional, found = torch._functorch.config, torch.nn.functional, []

    def written(x: Any, norm: Any, gate: Any, up: Any, down: Any) -> Any:
        rows = functional.rms_norm(x, (WIDTH,), norm)
        return x + functional.linear(functional.silu(functional.linear(rows, gate)) * functional.linear(rows, up), down)

    def forward(graph: Any, _: Any) -> Any:
        (outs,) = next(node for node in graph.graph.nodes if node.op == "output").args
        made = [one.meta["val"] for one in outs[1:] if "mm" in str(getattr(one, "target", ""))]
        found.append(sum(one.numel() * one.element_size() for one in made))
        return compile_.make_boxed_func(graph)

    def behind(graph: Any, _: Any) -> Any:
        return compile_.make_boxed_func(graph)

    sizes = ((1, TOKENS, WIDTH), (WIDTH,), (INNER, WIDTH), (INNER, WIDTH), (WIDTH, INNER))
    ins = [torch.randn(*one, dtype=torch.bfloat16, requires_grad=True) for one in sizes]
    with config.patch(activation_memory_budget=share):
        split = compile_.min_cut_rematerialization_partition
        compile_.aot_function(written, fw_compiler=forward, bw_compiler=behind, partition_fn=split)(*ins)
    return int(found[0])


def test_without_compile_there_is_no_budget() -> None:
    with pytest.raises(InputError) as found:
        check(titan({"kind": "selective", "policy": "memory budget 0.5"}, compiled=False))
    assert [one.path for one in found.value.problems] == ["stack.recompute.policy"]


def test_a_job_file_names_it(tmp_path: Any) -> None:
    path = tmp_path / "job.toml"
    text = '[model]\nname = "llama3"\nflavor = "8B"\n[training]\nlocal_batch_size = 1\nseq_len = 8192\n'
    text += '[compile]\nenable = true\n[activation_checkpoint]\nmode = "memory_budget"\nmemory_budget = 0.3\n'
    path.write_text(text, encoding="utf-8")
    plan = read_any([str(path)], ["parallel.world=8"]).plan
    assert plan.stack.recompute.policy == "memory budget 0.3"
