"""`trainledger.trace` and `trainledger.tracing`."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

import trainledger  # noqa: E402


def test_a_model_is_given_back_as_it_was() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    weight, value = model[0].weight, model[0].weight.clone()
    result = trainledger.trace(model, torch.zeros(8, 64), optimizer=optimizer, loss=lambda out, batch: out.sum())
    assert model[0].weight is weight
    assert optimizer.param_groups[0]["params"][0] is weight
    assert not optimizer.state
    assert torch.equal(weight, value)
    assert result.to_dict()["parameters"] == {"total": 4420, "trainable": 4420}
    assert "optimizer_states" in str(result)
    assert result._repr_html_().startswith("<div")
    model(torch.zeros(8, 64)).sum().backward()  # it still computes
    assert model[0].bias.grad is not None


def test_a_block() -> None:
    with trainledger.tracing("a100-80gb") as run:
        model = torch.nn.Linear(256, 256)
        optimizer = torch.optim.AdamW(model.parameters())
        for _ in range(2):
            model(torch.randn(8, 256)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    assert run.result.answer.verdict.outcome == "fits"
    assert [one.name for one in run.result.answer.ledger.moments][-1] == "step 2: optimizer"


def test_errors_are_one_line() -> None:
    with pytest.raises(trainledger.TraceError, match="failed at step 1: forward"):
        trainledger.trace(torch.nn.Linear(4, 4), torch.zeros(2, 3))
    with pytest.raises(trainledger.TraceError, match=r"torch\.nn\.Module is needed"):
        trainledger.trace(3, torch.zeros(2, 3))
    with pytest.raises(trainledger.InputError):
        trainledger.trace(torch.nn.Linear(4, 4), torch.zeros(2, 4), device="no such device")


def test_the_result_is_there_after_the_block() -> None:
    with trainledger.tracing() as run:
        with pytest.raises(trainledger.TraceError):
            run.result  # noqa: B018
        torch.nn.Linear(4, 4)(torch.zeros(2, 4)).sum().backward()
    assert run.result
