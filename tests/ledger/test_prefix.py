"""A trained prefix: copies for every layer, the cache's longer keys and values, and gradients that wait for the end."""

from __future__ import annotations

from typing import Any

import pytest

from tests.plans import LLAMA, plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.base.dims import elements
from trainledger.lines.line import Line

TOKENS, SEQUENCE, BATCH, LAYERS, KV = 32, 512, 2, 3, 2 * 64
ONE, LONG = BATCH * TOKENS * KV * 2, BATCH * (TOKENS + SEQUENCE) * KV * 2  # bytes in bf16


def found(
    attention: str = "sdpa", model: dict[str, Any] | None = None, versions: dict[str, str] | None = None, **options: Any
) -> Estimate:
    return estimate(
        plan_of(
            {**LLAMA, **(model or {})},
            adapter={"kind": "prefix-tuning", "dtype": "fp32", "options": {"num_virtual_tokens": TOKENS, **options}},
            precision={"weights": "bf16", "compute": "bf16", "autocast": False, "gradients": "fp32"},
            batch={"micro_batch": BATCH, "sequence": SEQUENCE, "accumulation": 1},
            stack={"attention": attention, **({"versions": versions} if versions else {})},
        )
    )


def lines(at: Estimate, text: str) -> list[Line]:
    return [one for one in at.ledger.lines if text in one.name]


def changes(at: Estimate, moment: str, text: str) -> tuple[int, int]:
    """How many tensors whose line's name has the text are born and die in moments that start so."""
    born = died = 0
    for name, events, repeat, _ in at.ledger.segments:
        for event in events if name.startswith(moment) else ():
            if text in at.ledger.lines[abs(event) - 1].name:
                born, died = born + repeat * (event > 0), died + repeat * (event < 0)
    return born, died


def test_each_layer_has_copies_of_its_own_until_it_joins_them() -> None:
    at = found()
    (line,) = lines(at, "a layer's keys or values of the prefix")
    assert line.unit == ONE
    assert changes(at, "step 2: forward", line.name) == (2 * LAYERS, 2 * LAYERS)


@pytest.mark.parametrize(
    ("model", "held"), [({}, False), ({"num_key_value_heads": 4}, True)], ids=["repeated", "as they are"]
)
def test_the_cache_holds_keys_and_values_until_the_caller_has_the_loss(model: dict[str, Any], held: bool) -> None:
    """Where heads are repeated autograd keeps the repeated ones, and the cache alone the others."""
    at = found(model=model)
    (keys,) = lines(at, "cached keys after the prefix's")
    assert keys.unit == LONG * (2 if held else 1)
    assert changes(at, "step 2: forward", keys.name) == (LAYERS, 0)
    assert changes(at, "step 2: loss", keys.name) == (0, 0 if held else LAYERS)
    assert changes(at, "step 2: backward", keys.name) == (0, LAYERS if held else 0)


@pytest.mark.parametrize(
    ("attention", "head"),
    [("sdpa", 64), ("eager", 64), ("flash", 64), ("sdpa", 60)],
    ids=["", "eager", "flash", "math"],
)
def test_gradients_of_all_keys_wait_for_the_end(attention: str, head: int) -> None:
    """A layer's gradient of keys is a view for the prefix: the whole of it lives until the last layer has run."""
    at = found(attention, {"head_dim": head})
    for name in ("keys", "values"):
        (line,) = lines(at, f"gradient of prefix {name}")
        assert line.unit == LONG // 64 * head
        assert changes(at, "step 2: backward of layer", line.name) == (LAYERS, 0)
        assert changes(at, "step 2: backward of the embedding", line.name) == (0, LAYERS)


@pytest.mark.parametrize(("attention", "size"), [("sdpa", 1), ("eager", 2 * BATCH), ("flash", 0)])
def test_there_is_a_mask_of_more_keys_than_queries(attention: str, size: int) -> None:
    """One square of bools for PyTorch's own call, an additive one of each sequence for eager attention, none else."""
    masks = [one.unit for one in lines(found(attention), "mask") if one.name in ("mask", "attention mask: additive")]
    assert masks == ([SEQUENCE * (SEQUENCE + TOKENS) * size] if size else [])


def test_a_mask_asks_for_the_kernel_that_takes_one() -> None:
    """Each layer writes the bools out, for all of the keys, and keeps that."""
    (line,) = lines(found(), "additive mask")
    assert elements(line.dims) == BATCH * SEQUENCE * (SEQUENCE + TOKENS)
    assert changes(found(), "step 2: forward", line.name) == (LAYERS, 0)


def test_the_network_runs_for_every_sequence() -> None:
    at = found(prefix_projection=True, encoder_hidden_size=1024)
    hidden = next(one for one in at.ledger.lines if one.name == "prompt_encoder: tanh")
    assert hidden.unit == BATCH * TOKENS * 1024 * 4
    assert changes(at, "step 2: forward", hidden.name) == (1, 0)


@pytest.mark.parametrize("kind", ["prefix-tuning", "p-tuning"])
def test_casts_of_its_network_end_with_the_autocast_region(kind: str) -> None:
    """Those of biases, which autograd does not keep, die with the forward."""
    at = estimate(
        plan_of(
            LLAMA,
            adapter={
                "kind": kind,
                "dtype": "fp32",
                "options": {"num_virtual_tokens": TOKENS, "encoder_hidden_size": 64}
                | ({"prefix_projection": True} if kind == "prefix-tuning" else {}),
            },
            precision={"weights": "bf16", "compute": "bf16", "autocast": True, "gradients": "fp32"},
        )
    )
    born, died = changes(at, "step 2: ", "bias (autocast)")
    assert born == died > 0


@pytest.mark.parametrize(("release", "each"), [("4.56.0", 1), ("5.13.1", 2), ("5.24.0", 2)])
def test_releases_tell_keys_from_values_in_their_own_ways(release: str, each: int) -> None:
    """Gradients of both of a layer: stacked; zero-filled for each; stacked and copied into a zero-filled one."""
    at = found(versions={"torch": "2.8.0", "transformers": release, "peft": "0.19.0"})
    both = born = 0
    for name, events, repeat, _ in at.ledger.segments:
        if name == "step 2: backward of the embedding":
            sizes = [at.ledger.lines[event - 1].unit for event in events if event > 0]
            both, born = both + repeat * sizes.count(2 * ONE), born + repeat * len(sizes)
    assert both == each * LAYERS
    assert born > both
