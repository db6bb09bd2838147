"""Layers that predict further tokens: their weights, what they keep, and where they stand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.ledger.test_megatron import BATCH, HIDDEN, LLAMA, SEQUENCE, plan_of
from trainledger.answer.estimate import Estimate, estimate, states_of
from trainledger.ledger.leaves import Leaves
from trainledger.ledger.mega_buffers import parameters_of
from trainledger.ledger.mega_pieces import Walks
from trainledger.ledger.mega_run import Rank, chunks_of
from trainledger.ledger.megatron import job_of
from trainledger.model import counts
from trainledger.model.build import model_of
from trainledger.plan.schema import Plan

TOKENS = SEQUENCE * BATCH
TE = {"kernels": ["te"], "attention": "fused", "options": {}}


def further(count: int, **parts: Any) -> Plan:
    return plan_of({**LLAMA, "num_nextn_predict_layers": count}, **{"stack": TE, **parts})


def softmaxes(found: Estimate) -> int:
    """Bytes of the losses' softmaxes in fp32 at the peak of a step's forward."""
    lines = found.ledger.lines
    moment = next(one for one in found.ledger.moments if one.name == "step 2: forward")
    return sum(lines[line].unit * n for line, n in moment.live if "softmax in fp32" in lines[line].name)


@pytest.mark.parametrize("count", [1, 2])
def test_each_layer_has_two_norms_a_projection_a_layer_and_a_norm(count: int) -> None:
    plain, more = (model_of(plan) for plan in (further(0), further(count)))
    layer = sum(weight.elements for weight in plain.blocks[0].weights)
    assert counts.total(more) - counts.total(plain) == count * (layer + 2 * HIDDEN * HIDDEN + 3 * HIDDEN)


@pytest.mark.parametrize("count", [1, 2])
def test_each_keeps_a_softmax_of_its_own(count: int) -> None:
    one = 4 * TOKENS * LLAMA["vocab_size"]
    assert softmaxes(estimate(further(count))) == (1 + count) * one


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("recompute", [{"kind": "none"}, {"kind": "full", "method": "uniform", "num_layers": 1}])
def test_the_last_piece_leaves_nothing_behind(count: int, recompute: dict[str, Any]) -> None:
    plan = further(count, stack={**TE, "recompute": recompute})
    job = job_of(plan, model_of(plan), "sm90")
    walks = Walks(job, Leaves(False, job.run.gradients, {}, copied=True), plan.stack.recompute)
    (chunk,) = chunks_of(plan, LLAMA["num_hidden_layers"], 0)
    made, live = walks.run(chunk), dict[int, int]()
    for segments in (made.forward, made.backward):
        for segment in segments:
            for event in segment.events * segment.repeat:
                live[abs(event) - 1] = live.get(abs(event) - 1, 0) + (1 if event > 0 else -1)
    left = {job.book.lines[line].name for line, copies in live.items() if copies}
    assert left <= {"loss", "gradient of hidden states"}


def test_a_stage_of_its_own_holds_an_embedding_and_not_the_last_norm() -> None:
    layout = {"pipeline_model_parallel_layout": "Ettttt|tttmL"}
    plan = further(1, parallel={"pp": 2, "options": layout}, batch={"accumulation": 4})
    first, last = (chunks_of(plan, LLAMA["num_hidden_layers"], stage) for stage in (0, 1))
    assert (first[0].normed, first[0].further) == (False, 0)
    assert (last[0].normed, last[0].further) == (True, 1)
    alone = further(
        1, parallel={"pp": 2, "options": {"pipeline_model_parallel_layout": "Etttttttt|mL"}}, batch={"accumulation": 4}
    )
    (middle,), (end,) = (chunks_of(alone, LLAMA["num_hidden_layers"], stage) for stage in (0, 1))
    assert middle.normed
    assert not end.normed
    assert end.layers == ()
    assert states_of(estimate(alone).ledger)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("fused", [False, True])
def test_a_tied_table_takes_the_gradients_of_both_its_readers(count: int, fused: bool) -> None:
    """The layers read the table as the embedding does, and each output layer reads it too: one gradient arrives."""
    options = {"gradient_accumulation_fusion": fused}
    model = {**LLAMA, "num_nextn_predict_layers": count, "tie_word_embeddings": True}
    tied = plan_of(model, stack=TE, parallel={"options": options})
    found = estimate(tied)
    waits = [one for one in found.ledger.lines if one.name == "first gradient of embedding.word_embeddings.weight"]
    assert [one.unit for one in waits] == [2 * LLAMA["vocab_size"] * HIDDEN]


@pytest.mark.parametrize("modules", [["core_attn"], ["mlp"], ["core_attn", "mlp"]])
def test_modules_of_each_layer_run_again_by_themselves(modules: list[str]) -> None:
    """What the layers keep beside a module that runs again does not depend on how many of them there are."""
    again = {**TE, "attention": "unfused", "recompute": {"kind": "selective", "modules": modules}}

    def kept(count: int) -> int:
        found = estimate(further(count, stack=again))
        lines = found.ledger.lines
        moment = next(one for one in found.ledger.moments if one.name == "step 2: forward")
        live = ((lines[line], copies) for line, copies in moment.live)
        return sum(line.unit * copies for line, copies in live if any(one in line.name for one in ("mlp", "eh_proj")))

    assert kept(2) - kept(1) == pytest.approx(kept(1) - kept(0), rel=0.05)


def live_of(found: Estimate, part: str) -> int:
    """Bytes of lines with this in their names at the end of a step's forwards."""
    moment = next(one for one in found.ledger.moments if one.name == "step 2: forward")
    lines = ((found.ledger.lines[line], copies) for line, copies in moment.live)
    return sum(line.unit * copies for line, copies in lines if part in line.name)


@pytest.mark.parametrize("count", [1, 2])
def test_a_stage_apart_runs_the_layers_and_the_last_has_their_losses(count: int) -> None:
    """Hidden states of all predictions pass between the two; the losses are where the output layer is."""
    plans = [
        further(
            count, parallel={"pp": 4, "options": {"pipeline_model_parallel_layout": layout}}, batch={"accumulation": 1}
        )
        for layout in (f"Etttt|tttt||{'m' * count}L", f"Etttt|tttt|{'m' * count}|L")
    ]
    beside, layers, losses = estimate(plans[0], 3), estimate(plans[1], 2), estimate(plans[1], 3)
    assert (
        live_of(losses, "softmax in fp32")
        == live_of(beside, "softmax in fp32")
        == (1 + count) * 4 * TOKENS * LLAMA["vocab_size"]
    )
    assert live_of(layers, "softmax in fp32") == 0
    assert live_of(layers, ".mlp") == live_of(beside, ".mlp") > 0
    passed = [line.unit for line in losses.ledger.lines if line.name == "hidden states"]
    assert (1 + count) * 2 * TOKENS * HIDDEN in passed


def test_a_chunk_without_layers_hands_on_a_copy() -> None:
    layout = {"pipeline_model_parallel_layout": "Ett||tttt|ttL"}
    plan = plan_of(LLAMA, stack=TE, parallel={"pp": 4, "options": layout}, batch={"accumulation": 8})
    found = estimate(plan, 1)
    moment = next(one for one in found.ledger.moments if one.name == "step 2: forward")
    hidden = next(at for at, line in enumerate(found.ledger.lines) if line.name == "hidden states")
    # what it was given of three in flight, and of the one gone backward last; the copy that it sends
    assert dict(moment.live)[hidden] == 3 + 1 + 1


def test_stages_that_read_the_embedding_keep_it_alike() -> None:
    """With layers for further tokens the table is shared between stages, tied or not, and by itself in its bucket."""
    layout = {"pipeline_model_parallel_layout": "Etttttttt|mL"}
    for tied in (False, True):
        model = {**LLAMA, "num_nextn_predict_layers": 1, "tie_word_embeddings": tied}
        plan = plan_of(model, stack=TE, parallel={"pp": 2, "dp": 2, "options": layout})
        job = job_of(plan, model_of(plan), "sm90")
        for stage in (0, 1):
            (chunk,) = chunks_of(plan, 8, stage)
            shared = [
                one.name for _, one in parameters_of(Rank(plan, job, (chunk,), stage), chunk) if one.shared_embedding
            ]
            assert shared == ["embedding.word_embeddings.weight"]
