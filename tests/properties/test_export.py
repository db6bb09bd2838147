"""Plans that a format can hold: written as its files and read again they are the same plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.importers.native import FOLDER
from trainledger.base.problems import InputError
from trainledger.facts.import_hf_optim import OPTIMS
from trainledger.facts.import_megatron import OPTIONS
from trainledger.importers.alike import differences
from trainledger.importers.document import Document
from trainledger.importers.draft import Draft
from trainledger.importers.export import export, read_back
from trainledger.importers.outside import read_any
from trainledger.importers.plan_file import draft_of
from trainledger.plan.schema import as_mapping

FILES = Path(__file__).resolve().parents[1] / "importers" / "files"
# Runs to begin with, by what they are written as: keys that a strategy settles come from here.
BASES: dict[str, tuple[str, ...]] = {
    "accelerate": ("script/accelerate_flags.sh",),
    "axolotl": ("axolotl/qlora-8b.yml", "axolotl/full-zero3/run.sh", "axolotl/fsdp2-hybrid.yml"),
    "deepspeed": ("../records/zero2/run.sh", "../records/zero3/run.sh"),
    "llama-factory": ("llamafactory/full-z3/run.sh", "llamafactory/words.sh"),
    "trl": ("trl/dpo.yaml",),
    "torchtune": ("torchtune",),
    "torchtitan": ("torchtitan",),
    "megatron": ("megatron/tp4_pp1_overlap.yaml", "megatron/experts_ep4.yaml", "megatron/interleaved_pp4.sh"),
}
TRAINERS = ("accelerate", "axolotl", "deepspeed", "llama-factory", "trl")
COUNTS = st.integers(1, 64)


def bases(to: str) -> list[dict[str, Any]]:
    names = BASES[to]
    paths = [FILES / name for name in names] if "/" in names[0] else sorted((FOLDER / to).glob("*.sh"))
    found = []
    for path in paths:
        with_world = ["parallel.world=8"] if path.suffix in (".yml", ".yaml") and to != "megatron" else []
        try:
            draft = read_any([str(path)], with_world)
            if any(not one.path.startswith("device") for one in export(draft, to).unsaid):
                continue  # a run whose release the format does not have
        except InputError:
            continue  # a run that cannot be estimated
        found.append(as_mapping(draft.plan))
    assert found
    return found


def optimizers(to: str) -> st.SearchStrategy[dict[str, Any]]:
    """Optimizers that the format has, with the way in which each steps."""
    if to in TRAINERS:
        rows = [row for row in OPTIMS.values() if not row.options and "galore" not in row.name]
        return st.sampled_from(rows).map(
            lambda row: {
                "name": row.optimizer, "implementation": row.implementation or None, "in_backward": row.in_backward
            }
        )  # fmt: skip
    if to == "torchtune":
        named = [{"name": name, "implementation": None} for name in ("adamw-8bit", "paged-adamw-8bit", "adamw-4bit")]
        own = [{"name": "adamw", "implementation": how} for how in ("fused", "foreach", "loop")]
        return st.sampled_from([*own, *named])
    if to == "torchtitan":
        return st.sampled_from([{"name": "adamw", "implementation": how} for how in ("fused", "foreach", "loop")])
    return st.sampled_from([{"name": "adam", "implementation": "apex-fused"}])


def recomputes(to: str) -> st.SearchStrategy[Any]:
    if to == "megatron":
        kinds: list[Any] = [
            {"kind": "none"}, {"kind": "full", "method": "uniform", "num_layers": 1},
            {"kind": "full", "method": "block", "num_layers": 2}, {"kind": "selective", "modules": ["core_attn"]},
        ]  # fmt: skip
    elif to in TRAINERS:
        kinds = [{"kind": "none"}, *({"kind": "full", "reentrant": on} for on in (True, False))]
    else:
        policies = ["op", "every 2nd layer", "every 3rd layer", "every 14th layer"]
        kinds = [{"kind": "none"}, {"kind": "full", "reentrant": False}]
        kinds += [{"kind": "selective", "policy": policy} for policy in policies]
    return st.sampled_from(kinds)


def attentions(to: str) -> st.SearchStrategy[str]:
    words = {
        "megatron": ("flash", "fused", "unfused"), "torchtune": ("sdpa", "flex"), "torchtitan": ("sdpa", "flex"),
        "llama-factory": ("flash", "sdpa", "eager"),
    }  # fmt: skip
    return st.sampled_from(words.get(to, ("flash", "sdpa", "flex", "eager")))


def options(to: str) -> st.SearchStrategy[dict[str, Any]]:
    """Options of the strategy that an argument of Megatron's is."""
    if to != "megatron":
        return st.just({})
    names = [path.removeprefix("parallel.options.") for _, path in OPTIONS if path.startswith("parallel.options.")]
    flags = [name for name in names if name.startswith(("overlap_grad", "overlap_param_gather", "ddp_average"))]
    return st.dictionaries(st.sampled_from(flags), st.just(True), max_size=2)


BASE = {to: bases(to) for to in BASES}


@st.composite
def plans(draw: st.DrawFn, to: str) -> Draft:
    """A run with its batch, optimizer, attention, recompute and adapter drawn anew."""
    data = dict(draw(st.sampled_from(BASE[to])))
    zero = str(data["parallel"]["strategy"]).startswith("zero")
    sequence = draw(st.integers(1, 128)) * 64
    data["batch"] = {"micro_batch": draw(COUNTS), "sequence": sequence, "accumulation": draw(COUNTS)}
    clip = draw(st.sampled_from([0.5, 1.0] if to == "torchtitan" else [None, 0.5, 1.0]))  # it always clips
    held = data["optimizer"] if zero or "offload" in str(data.get("offload")) else draw(optimizers(to))
    data["optimizer"] = {**held, "grad_clip": clip if to not in ("deepspeed",) and not zero else 1.0}
    masked = data["model"].get("model_type") == "deepseek_v3"  # torchtitan's flavours of it have one attention
    kernel = data["stack"]["attention"] if masked else draw(attentions(to))
    data["stack"] = {**data["stack"], "attention": kernel, "recompute": draw(recomputes(to))}
    data["parallel"] = {**data["parallel"], "options": {**data["parallel"].get("options", {}), **draw(options(to))}}
    if data.get("adapter"):
        targets = draw(st.sets(st.sampled_from(["q_proj", "k_proj", "v_proj", "o_proj"]), min_size=1))
        dropout = draw(st.sampled_from([0.0, 0.05, 0.1]))
        data["adapter"] = {**data["adapter"], "r": draw(COUNTS), "dropout": dropout, "targets": sorted(targets)}
    if draw(st.booleans()):
        data["stack"]["allocator"] = draw(
            st.fixed_dictionaries(
                {}, optional={"expandable_segments": st.booleans(), "max_split_size_mb": st.integers(32, 512)}
            )
        )
    return draft_of(Document(data, {}))


@pytest.mark.parametrize("to", BASES)
@settings(max_examples=10)
@given(data=st.data())
def test_a_plan_that_a_format_can_hold_comes_back(to: str, data: st.DataObject) -> None:
    draft = data.draw(plans(to))
    found = export(draft, to)
    assert [one.path for one in found.unsaid if not one.path.startswith("device")] == []
    back = read_back(found.files, found.reads, draft.plan.stack.versions)
    assert not [one.path for one in differences(draft.plan, back) if not one.path.startswith("device")]
    assert back.batch.micro_batch == draft.plan.batch.micro_batch
    assert back.batch.sequence == draft.plan.batch.sequence
    assert back.batch.accumulation == draft.plan.batch.accumulation
    assert back.optimizer.grad_clip == draft.plan.optimizer.grad_clip
    assert (back.parallel.world, back.parallel.strategy) == (draft.plan.parallel.world, draft.plan.parallel.strategy)
