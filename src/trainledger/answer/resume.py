"""What resuming a checkpoint on other ranks takes: bytes that each reads, from how many files, the host's memory.

A rank's bytes are those of the files, or of stored tensors, that it reads whole. Metadata is not counted.
"""

from __future__ import annotations

from trainledger.answer.resume_read import WEIGHTS_ALONE, Resume, Written
from trainledger.answer.resume_ways import converted, dist, full, own_files, parted, sharded, torch, whole
from trainledger.answer.saved import format_of, inner_format
from trainledger.base.problems import wrong
from trainledger.facts.checkpoints import FORMATS
from trainledger.model.counts import kinds
from trainledger.model.program import Model
from trainledger.plan.degrees import degrees
from trainledger.plan.schema import Plan

UNCUT = ("ep", "etp", "vpp")  # degrees over which tensors are not known to be cut anew


def at_world(plan: Plan, world: int) -> Plan:
    """The plan on so many ranks, with other data parallelism. Raises InputError where its other degrees do not divide
    them."""
    given = degrees(plan)
    inner = given.tp * given.cp * given.pp
    if world < 1 or world % inner:
        near = max(world // inner, 1) * inner
        allowed = f"a multiple of tp x cp x pp, {inner}, is needed"
        raise wrong("--resume-world", f"found {world}", allowed, f"Did you mean {near}?")
    dp = world // inner
    shard = given.shard if given.shard < given.dp else dp * (given.shard // given.dp)
    if given.shard < given.dp and dp % shard:
        allowed = f"a multiple of {inner * shard}, parts of {shard} ranks each, is needed"
        raise wrong("--resume-world", f"found {world}", allowed)
    parallel = plan.parallel.model_copy(update={"world": world, "dp": dp, "shard": shard})
    return plan.model_copy(update={"parallel": parallel})


def resume(written: Written, other: Plan, model: Model, universal: bool = False) -> Resume:
    """What the other plan's ranks read, whose model this is. `universal`: of DeepSpeed's, once it is converted. Raises
    InputError where they cannot read it."""
    kind = written.kind
    _alike(written, other, model, kind)
    if universal and kind != "deepspeed":
        raise wrong(
            "--universal", "given", f"DeepSpeed's checkpoints are converted, and this is {kind}", "Leave it out."
        )
    made = {
        "fsdp-full": full,
        "fsdp-sharded": sharded,
        "megatron-dist": dist,
        "megatron-torch": torch,
        "deepspeed": converted if universal else parted,
        "torch-sharded": own_files,
    }.get(kind, whole)
    return made(written, other, model)


def _alike(written: Written, other: Plan, model: Model, kind: str) -> None:
    """The other plan has the same weights, and its framework reads the format."""
    before, after = ([(weight.name, weight.shape, count) for weight, count in kinds(one)]
                     for one in (written.model, model))  # fmt: skip
    if before != after:
        named = str(other.keys().get("name") or other.keys().get("model_type"))
        raise wrong("model", f"found {named}, with other weights", "the model that was saved is needed")
    reads = inner_format(other, format_of(other))
    if kind not in (reads, WEIGHTS_ALONE):
        found = f"{other.stack.framework} reads {reads}"
        raise wrong("save.format", found, f"the checkpoint is {kind}: {FORMATS[kind].other}")
    for name in UNCUT:
        mine, theirs = ((getattr(one.parallel, name) or 1) for one in (written.plan, other))
        if mine != theirs and kind in ("fsdp-sharded", "megatron-dist", "deepspeed"):
            found = f"found {theirs}, the checkpoint has {mine}"
            raise wrong(f"parallel.{name}", found, "only the same can be counted so far")
    spread = other.parallel.etp or other.parallel.tp
    if kind == "megatron-dist" and other.parallel.ep > 1 and spread > 1:
        raise wrong("parallel.etp", f"found {spread} with ep {other.parallel.ep}", "1 can be counted so far")
    if other.parallel.ep > 1 and kind == "fsdp-sharded":
        raise wrong("parallel.ep", f"found {other.parallel.ep}", "1 can be counted of this format so far")
