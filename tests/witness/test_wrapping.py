"""FSDP1 wrapping by size: units, and the order of gathers and reductions, held against PyTorch's own."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch
from torch.distributed.fsdp import BackwardPrefetch, FullyShardedDataParallel, ShardingStrategy, _runtime_utils
from torch.distributed.fsdp._flat_param import FlatParamHandle
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM

from tests.plans import plan_of
from trainledger.answer.estimate import Estimate, estimate
from trainledger.evidence.trace.live.fsdp import pretend_ranks
from trainledger.ledger.book import Book
from trainledger.ledger.layout_flat import FlatSharded
from trainledger.ledger.opening import Job
from trainledger.ledger.rank import trained_of, updates_of
from trainledger.ledger.run import run_of
from trainledger.ledger.strategy import layout_of
from trainledger.ledger.units import ROOT
from trainledger.ledger.wrapping import by_size
from trainledger.model.build import model_of

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256}
GROUPED = {**SMALL, "intermediate_size": 160, "num_key_value_heads": 2, "tie_word_embeddings": False}
MODELS: dict[str, dict[str, Any]] = {
    "llama": {"model_type": "llama", **GROUPED},
    "qwen3": {"model_type": "qwen3", **GROUPED, "head_dim": 16},
    "gpt_neox": {"model_type": "gpt_neox", **SMALL, "intermediate_size": 160, "tie_word_embeddings": False},
    "mixtral": {"model_type": "mixtral", **GROUPED, "num_local_experts": 4},
    "cohere": {"model_type": "cohere", **GROUPED, "pad_token_id": 0},
    "gemma2": {"model_type": "gemma2", **GROUPED, "head_dim": 16, "pad_token_id": 0},
    "opt": {
        "model_type": "opt", **SMALL, "ffn_dim": 160, "max_position_embeddings": 64, "word_embed_proj_dim": 64,
        "tie_word_embeddings": False,
    },
    "bert": {
        "model_type": "bert", **SMALL, "intermediate_size": 160, "max_position_embeddings": 64,
        "architectures": ["BertForMaskedLM"], "tie_word_embeddings": False,
    },
}  # fmt: skip
SIZES = (2_000, 4_000, 8_000, 10_240, 16_000, 25_000, 40_000, 10**9)
PURE = {"weights": "fp32", "compute": "fp32", "autocast": False, "gradients": "fp32", "reduce": "fp32"}
Step = tuple[str, str]


def wrapped(family: str, least: int, **options: Any) -> Any:
    """The real model under FSDP1."""
    keys = dict(MODELS[family])
    kind = AutoModelForMaskedLM if family == "bert" else AutoModelForCausalLM
    model = kind.from_config(AutoConfig.for_model(keys.pop("model_type"), **keys))
    model.train()
    if options.pop("recompute", False):
        model.gradient_checkpointing_enable({"use_reentrant": False})
    policy = partial(size_based_auto_wrap_policy, min_num_params=least)
    return FullyShardedDataParallel(
        model, auto_wrap_policy=policy, device_id=torch.device("cpu"), use_orig_params=True, **options
    )


def units_of(model: Any) -> dict[Any, str]:
    """Names of the units, by handle."""
    found = {}
    for name, module in model.named_modules():
        if isinstance(module, FullyShardedDataParallel) and module._handle:
            path = name.replace("_fsdp_wrapped_module.", "").replace("_fsdp_wrapped_module", "")
            found[module._handle] = re.sub(r"\.\d+$", "", re.sub(r"\.\d+\.", ".*.", path)) or ROOT
    return found


@pytest.mark.parametrize("family", MODELS)
@pytest.mark.parametrize("least", SIZES)
def test_units_are_those_of_the_policy(family: str, least: int) -> None:
    with pretend_ranks(2):
        theirs = [(name, sum(handle.flat_param._numels)) for handle, name in units_of(wrapped(family, least)).items()]
    units = by_size(model_of(plan_of(MODELS[family])), least)
    ours = [(unit.name, sum(one.weight.elements for one in unit.members)) for unit in units.every()]
    assert sorted(ours) == sorted(theirs)


@pytest.mark.parametrize("policy", ["SIZE_BASED_WRAP", "NO_WRAP"])
def test_with_an_adapter_units_are_those_of_pefts_policy(policy: str) -> None:
    """Which the Trainer puts in the place of the plan's. What is trained of a layer is one unit here, and one for each
    leaf there, which open and reduce with their layer."""
    peft = pytest.importorskip("peft")
    from peft.utils.other import fsdp_auto_wrap_policy

    keys = dict(MODELS["llama"])
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(keys.pop("model_type"), **keys))
    tuned = peft.get_peft_model(model, peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"]))
    with pretend_ranks(2):
        whole = FullyShardedDataParallel(
            tuned, auto_wrap_policy=fsdp_auto_wrap_policy(tuned), device_id=torch.device("cpu"), use_orig_params=True
        )
        theirs: dict[str, int] = {}
        for handle, name in units_of(whole).items():
            layer = re.sub(r".*layers.*", "layer", name)
            unit = f"what is trained of {layer}" if "lora" in name else layer
            theirs[unit] = theirs.get(unit, 0) + sum(handle.flat_param._numels)
    lora = {"kind": "lora", "r": 4, "targets": ["q_proj", "down_proj"], "dtype": "fp32"}
    options = {"auto_wrap_policy": policy, "min_num_params": 16_000, "use_orig_params": True}
    versions = {"torch": "2.13.0", "transformers": "5.24.0", "accelerate": "1.15.0", "peft": "0.21.2"}
    parallel = {"strategy": "fsdp1", "dp": 2, "options": options}
    plan = plan_of(MODELS["llama"], precision=PURE, parallel=parallel, adapter=lora, stack={"versions": versions})
    built = model_of(plan)
    job = Job(Book(), built, run_of(plan, "sm80"), trained_of(plan))
    layout = layout_of(plan, job, updates_of(plan), None, None)
    assert isinstance(layout, FlatSharded)
    ours: dict[str, int] = {}
    for one in layout.units.every():
        name = one.name.replace("model.layers", "layer")
        ours[name] = ours.get(name, 0) + sum(member.weight.elements for member in one.members)
    assert ours == theirs


@contextmanager
def watched(names: dict[Any, str], log: list[Step]) -> Iterator[None]:
    """Note every gather, release and reduction."""
    gather, release, reduce = FlatParamHandle.unshard, FlatParamHandle.reshard, _runtime_utils._reduce_grad

    def unshard(handle: Any) -> Any:
        if handle.needs_unshard():
            log.append(("gather", names[handle]))
        return gather(handle)

    def reshard(handle: Any, free: bool) -> Any:
        if free and not handle.needs_unshard():
            log.append(("let go", names[handle]))
        return release(handle, free)

    def reduced(state: Any, handle: Any) -> Any:
        log.append(("reduce", names[handle]))
        return reduce(state, handle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FlatParamHandle, "unshard", unshard)
        patch.setattr(FlatParamHandle, "reshard", reshard)
        patch.setattr(_runtime_utils, "_reduce_grad", reduced)
        yield


def run(family: str, least: int, **options: Any) -> list[Step]:
    """What the second step of the real model does."""
    log: list[Step] = []
    with pretend_ranks(2):
        model = wrapped(family, least, **options)
        ids = torch.randint(1, MODELS[family]["vocab_size"], (1, 8))
        with watched(units_of(model), log):
            for _ in range(2):
                log.clear()
                model(input_ids=ids, labels=ids).loss.backward()
    return log


def steps_of(found: Estimate) -> list[Step]:
    """What the ledger's second step does."""
    lines, log = found.ledger.lines, list[Step]()
    for segment in found.ledger.segments:
        if not segment.moment.startswith("step 2"):
            continue
        for event in segment.events * segment.repeat:
            name = lines[abs(event) - 1].name
            if name.startswith("gathered weights of "):
                log.append(("gather" if event > 0 else "let go", name.removeprefix("gathered weights of ")))
            elif event > 0 and (unit := re.fullmatch(r"gradients of (.+), this rank's part", name)):
                log.append(("reduce", unit.group(1)))
    return log


CASES: list[tuple[str, int, dict[str, Any]]] = [
    *(("llama", least, {}) for least in SIZES),
    *(("llama", least, {"recompute": True}) for least in SIZES),
    *((family, 8_000, {}) for family in MODELS),
    *((family, 2_000, {"recompute": True}) for family in MODELS),
    *(("qwen3", 4_000, {"backward_prefetch": kind}) for kind in ("BACKWARD_POST", "NO_PREFETCH")),
    *(("llama", least, {"forward_prefetch": True}) for least in (2_000, 8_000, 16_000)),
    *(("gpt_neox", least, {"sharding_strategy": "SHARD_GRAD_OP", "recompute": True}) for least in (4_000, 16_000)),
]


@pytest.mark.parametrize(("family", "least", "options"), CASES)
def test_units_are_gathered_and_reduced_in_the_same_order(family: str, least: int, options: dict[str, Any]) -> None:
    real = dict(options)
    prefetch = real.pop("backward_prefetch", "BACKWARD_PRE")
    real["backward_prefetch"] = getattr(BackwardPrefetch, prefetch, None)
    if "sharding_strategy" in real:
        real["sharding_strategy"] = ShardingStrategy[real["sharding_strategy"]]
    given = {key: value for key, value in options.items() if key != "recompute"}
    plan = plan_of(
        MODELS[family],
        precision=PURE,
        batch={"micro_batch": 1, "sequence": 8},
        parallel={
            "strategy": "fsdp1",
            "dp": 2,
            "options": {
                "auto_wrap_policy": "SIZE_BASED_WRAP", "min_num_params": least, "use_orig_params": True,
                "backward_prefetch": prefetch, **given,
            },
        },
        stack={"recompute": {"kind": "full", "reentrant": False} if options.get("recompute") else "none"},
    )  # fmt: skip
    assert steps_of(estimate(plan)) == run(family, least, **real)


@pytest.mark.parametrize("recompute", [True, False])
def test_layers_gathered_ahead_in_forward_are_reduced_later(recompute: bool) -> None:
    """By layers, whose name for it is another: what is reduced after the backward of the layer before."""
    options = {"use_orig_params": True, "backward_prefetch": "BACKWARD_PRE", "forward_prefetch": True}
    plan = plan_of(
        MODELS["llama"],
        precision=PURE,
        batch={"micro_batch": 1, "sequence": 8},
        parallel={"strategy": "fsdp1", "dp": 2, "options": options},
        stack={"recompute": {"kind": "full", "reentrant": False} if recompute else "none"},
    )
    real = run("llama", 40_000, recompute=recompute, forward_prefetch=True)
    assert steps_of(estimate(plan)) == real
