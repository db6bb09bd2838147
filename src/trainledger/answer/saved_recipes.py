"""What torchtune's recipes and LitGPT's scripts write."""

from __future__ import annotations

from collections.abc import Iterator

from trainledger.answer.saved import Holds, Saved, Written, one_file, packed
from trainledger.facts.checkpoints import BASE_FILES
from trainledger.plan.schema import Plan

PRETRAIN = "pretrain"


def torchtune(plan: Plan, saved: Saved) -> Iterator[Written]:
    """Weights, with an adapter merged into them, in as many files as the base has; the adapter in torchtune's names and
    in PEFT's; the recipe's state, which the next epoch writes over."""
    limit = plan.save.file_bytes if plan.save else None
    sizes = packed(saved.merged or saved.tensors, limit or BASE_FILES.bytes)
    for number, size in enumerate(sizes, 1):
        yield one_file(f"epoch_*/model-{number:05d}-of-{len(sizes):05d}.safetensors", Holds.WEIGHTS, size)
    if plan.adapter is not None:
        yield from adapters(saved)
    yield recipe_state(saved)


def adapters(saved: Saved) -> Iterator[Written]:
    """An adapter twice."""
    yield one_file("epoch_*/adapter_model.pt", Holds.ADAPTER, saved.weights)
    yield one_file("epoch_*/adapter_model.safetensors", Holds.EXPORT, saved.weights)


def recipe_state(saved: Saved) -> Written:
    """The optimizer's states."""
    return one_file("recipe_state/recipe_state.pt", Holds.OPTIMIZER, saved.states, once=True)


def litgpt(plan: Plan, saved: Saved) -> Iterator[Written]:
    """One file with weights and states, or with an adapter's factors alone; after fine-tuning, whole weights."""
    if plan.adapter is not None:
        yield one_file("step-*/lit_model.pth.lora", Holds.ADAPTER, saved.weights)
        whole = sum(sum(layer) * count for layer, count in saved.merged)
        yield one_file("final/lit_model.pth", Holds.EXPORT, whole, once=True)
        return
    yield one_file("step-*/lit_model.pth", Holds.WEIGHTS, saved.weights)
    yield one_file("step-*/lit_model.pth (optimizer)", Holds.OPTIMIZER, saved.states)
    if plan.task != PRETRAIN:
        yield one_file("final/lit_model.pth", Holds.EXPORT, saved.weights, once=True)
