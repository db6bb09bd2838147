"""How ranks read a checkpoint, by format."""

from __future__ import annotations

from dataclasses import replace

from trainledger.answer.checkpoint import largest
from trainledger.answer.host import copies_of, way_of
from trainledger.answer.resume_deepspeed import conversion, read_whole
from trainledger.answer.resume_read import WEIGHTS_ALONE, Resume, Written, answered
from trainledger.answer.resume_sliced import Part, Reading, sliced
from trainledger.answer.saved import Holds
from trainledger.answer.saved_sizes import Sizes, dtype_of, sized
from trainledger.base.problems import wrong
from trainledger.facts.checkpoints import DIST_FILES, FORMATS, PARTED, SCATTERED, SLICED, UNIVERSAL
from trainledger.facts.deepspeed import ZERO3
from trainledger.facts.host_memory import Load
from trainledger.facts.litgpt import NAME as LITGPT
from trainledger.facts.sharding import FIRST
from trainledger.facts.torchtune import NAME as TORCHTUNE
from trainledger.ledger.mega_buffers import DISTRIBUTED
from trainledger.ledger.strategy import fsdp_of
from trainledger.model.counts import kinds
from trainledger.model.program import Model, Role
from trainledger.model.prompts import shared_weights
from trainledger.plan.degrees import degrees
from trainledger.plan.engines import ZERO
from trainledger.plan.schema import Plan


def whole(written: Written, other: Plan, model: Model) -> Resume:
    """Every rank reads everything, but where one reads the weights for all."""
    kind, ranks, way = written.kind, degrees(other).world, way_of(other)
    one = way.load in (Load.FIRST, Load.ZERO) and kind in (WEIGHTS_ALONE, "trainer")
    host = largest([each for each in written.files if each.what is not Holds.OPTIMIZER])
    if kind == WEIGHTS_ALONE:
        tensor = max(dtype_of(other, weight).bytes_of(weight.elements) for weight, _ in kinds(model))
        host = written.weights if copies_of(way.load, 1) else tensor
    elif kind == "torch":
        host = largest(written.files)
    elif kind in (TORCHTUNE, LITGPT):  # torchtune's weights stay in their file, its other state does not
        host = sum(one.total for one in written.files if one.what is Holds.OPTIMIZER or kind == LITGPT)
    text = "one rank reads the weights for all" if one else "every rank reads all of it"
    total = written.weights * (1 if one else ranks) + (written.total - written.weights) * ranks
    reading = Reading(written.total, sum(each.count for each in written.files), total, host)
    return answered(text, other, written, reading, way.source if kind == WEIGHTS_ALONE else written.source)


def full(written: Written, other: Plan, model: Model) -> Resume:
    """Rank 0 reads all and sends it; under FSDP1 every rank reads the weights."""
    every = fsdp_of(other) == FIRST
    text = "every rank reads the weights, rank 0 the optimizer" if every else "rank 0 reads all and sends the parts"
    total = written.weights * (degrees(other).world if every else 1) + written.total - written.weights
    reading = Reading(written.total, len(written.files), total, largest(written.files))
    return answered(text, other, written, reading, written.source)


def _weights(one: Sizes) -> int:
    return one.saved


def _dense(one: Sizes) -> int:
    return 0 if one.weight.role is Role.EXPERT else one.kept


def _experts(one: Sizes) -> int:
    return one.kept if one.weight.role is Role.EXPERT else 0


def _pieces(plan: Plan, expert: bool) -> int:
    """Data-parallel ranks of dense weights, or of routed experts."""
    given = degrees(plan)
    inner = given.ep * (plan.parallel.etp or given.tp) if expert else given.tp
    return max(given.world // (inner * given.pp), 1)


def sharded(written: Written, other: Plan, model: Model) -> Resume:
    """Each rank reads every stored shard that overlaps one of its own."""
    before, after = degrees(written.plan), degrees(other)
    old, new = Part(written.plan, written.model, before.shard), Part(other, model, after.shard)
    replicas = after.world // (after.tp * after.pp * after.shard)
    twice, whole = shared_weights(written.model), written.whole

    def stored(one: Sizes) -> int:
        again = one.saved if one.weight in twice else 0  # a tied weight is stored under both of its names
        return one.saved + again + (one.kept if whole else 0)

    reading = sliced(old, new, stored, replicas)
    holders = before.tp * before.pp * before.shard
    files = reading.writers * sum(-(-one.count // holders) for one in written.files)
    reading = replace(reading, writers=files)
    return answered("each rank reads the shards that overlap its own", other, written, reading, SLICED)


def dist(written: Written, other: Plan, model: Model) -> Resume:
    """Weights by every rank. The distributed optimizer's states lie in flat buckets, which other data-parallel ranks
    cut anew, unless they were written whole: then one rank of each part reads them and scatters."""
    before, after = degrees(written.plan), degrees(other)
    save = written.plan.save
    flat = written.whole and written.plan.parallel.strategy == DISTRIBUTED and not (save and save.resharded)
    if flat and (before.tp, before.pp) != (after.tp, after.pp):
        found = f"found tp {after.tp}, pp {after.pp}; the checkpoint has tp {before.tp}, pp {before.pp}"
        fix = "Write it with save.resharded: true (--dist-ckpt-optim-fully-reshardable)."
        raise wrong("parallel", found, "optimizer states in flat buckets are read at the same", fix)
    replicas = after.world // (after.tp * after.pp)
    old, new = Part(written.plan, written.model, 1), Part(other, model, 1)
    reading = sliced(old, new, _weights, replicas)
    files = reading.writers * before.world // (before.tp * before.pp) * DIST_FILES.threads
    way = "each rank reads the weights that overlap its own"
    if written.whole:
        states, more = _states(written.plan, old, new, flat)
        way += more
        reading = Reading(reading.most + states.most, files, reading.total + states.total,
                          max(reading.largest, states.largest))  # fmt: skip
    return answered(way, other, written, replace(reading, writers=files), SCATTERED)


def _states(plan: Plan, old: Part, new: Part, flat: bool) -> tuple[Reading, str]:
    """Dense weights' states and experts', of which each of their ranks has a part; how they are read."""
    dense, experts = sliced(old, new, _dense, 1), sliced(old, new, _experts, 1)
    experts = replace(experts, total=experts.total * degrees(plan).ep)
    more = "; one of each part reads its states and scatters them"
    if flat:
        dense, count = _flat(dense, _pieces(plan, False), _pieces(new.plan, False))
        experts, _ = _flat(experts, _pieces(plan, True), _pieces(new.plan, True))
        more = f", and {count} of its part's flat pieces"
        kept = next(one for one in sized(plan, old.model) if one.kept)  # each state is a tensor of its own
        dense, experts = (
            replace(each, largest=-(-each.largest * max((kept.master, *kept.states)) // kept.kept))
            for each in (dense, experts)
        )
    largest = max(dense.largest, experts.largest)
    return Reading(dense.most + experts.most, 0, dense.total + experts.total, largest), more


def _flat(states: Reading, pieces: int, ranks: int) -> tuple[Reading, int]:
    """States of a model-parallel part in so many flat pieces, as so many data-parallel ranks read those that overlap
    their own; how many one reads at most."""
    counts = [-(-(at + 1) * pieces // ranks) - at * pieces // ranks for at in range(ranks)]
    most, total = -(-states.most * max(counts) // pieces), -(-states.total * sum(counts) // pieces)
    return Reading(most, 0, total, -(-states.most // pieces)), max(counts)


def torch(written: Written, other: Plan, model: Model) -> Resume:
    """Each rank reads its model-parallel part's file; one of each part reads the distributed optimizer's and
    scatters."""
    before, after = degrees(written.plan), degrees(other)
    mine, theirs = (before.tp, before.pp, before.ep), (after.tp, after.pp, after.ep)
    if mine != theirs:
        found = f"found tp, pp, ep {theirs}; the checkpoint has {mine}"
        raise wrong("parallel", found, "the same are needed", f"Else {FORMATS['megatron-torch'].other}.")
    weights = max(one.bytes for one in written.files if one.what is not Holds.OPTIMIZER)
    states = sum(one.bytes for one in written.files if one.what is Holds.OPTIMIZER)
    parts, apart = before.tp * before.pp * before.ep, written.plan.parallel.strategy == DISTRIBUTED
    total = weights * after.world + states * (parts if apart else after.world)
    reading = Reading(weights + states, 1 + (apart and states > 0), total, max(weights, states))
    way = "each rank reads its part's weights" + (", one of each part its states" if apart else " and states")
    return answered(way, other, written, reading, written.source)


def parted(written: Written, other: Plan, model: Model) -> Resume:
    """Each rank reads the weights that rank 0 wrote, and its own part."""
    before, after = degrees(written.plan), degrees(other)
    stages = (written.plan.parallel.strategy, other.parallel.strategy)
    fix = "Convert it first: add --universal."
    if stages[0] != stages[1]:
        raise wrong("parallel.strategy", f"found {stages[1]}", f"the checkpoint is of {stages[0]}", fix)
    spread = stages[0] in ZERO
    if spread and before.shard != after.shard:
        allowed = f"the {before.shard} ranks that wrote parts are needed: DeepSpeed does not cut them anew"
        raise wrong("parallel.dp", f"found {after.shard}", allowed, fix)
    sizes = [one.bytes for one in written.files]
    reading = Reading(sum(sizes), len(sizes), sum(sizes) * after.world, max(sizes, default=0))
    way = "each rank reads the weights and its own part" if spread else "every rank reads all of it"
    return answered(way, other, written, reading, PARTED)


def own_files(written: Written, other: Plan, model: Model) -> Resume:
    """Each rank reads the files that it wrote."""
    before, after = degrees(written.plan), degrees(other)
    same = (before.world, before.shard, before.tp, before.pp) == (after.world, after.shard, after.tp, after.pp)
    if not same or fsdp_of(written.plan) != fsdp_of(other):
        found, fix = f"found {after.world} ranks, shard {after.shard}", f"Else {FORMATS['torch-sharded'].other}."
        allowed = f"the {before.world} ranks that wrote it, shard {before.shard}, are needed"
        raise wrong("parallel", found, allowed, fix)
    sizes = [one.bytes for one in written.files]
    reading = Reading(sum(sizes), len(sizes), sum(sizes) * after.world, max(sizes, default=0))
    return answered("each rank reads the files that it wrote", other, written, reading, written.source)


def converted(written: Written, other: Plan, model: Model) -> Resume:
    """Each rank reads the model's states, and the files of parameters that it has a piece of."""
    if not written.whole or written.plan.parallel.strategy not in ZERO:
        raise wrong("--universal", "given", "states of ZeRO's stages 1 to 3 are what it converts")
    if written.plan.parallel.tp * other.parallel.tp > 1:
        raise wrong("parallel.tp", "found tensor parallelism", "1 can be counted of a conversion so far")
    weights = written.weights
    part = max(one.bytes for one in written.files if one.what is Holds.OPTIMIZER)
    ranks, most = read_whole(written.plan, model, other)
    size, files = max(ranks)
    replicas = degrees(other).world // len(ranks)
    total = sum(one for one, _ in ranks) * replicas + weights * degrees(other).world
    made = conversion(written.plan, model, part, weights)
    reading = Reading(size + weights, files + bool(weights), total, max(most, weights))
    way = "each rank reads whole parameters: " + (
        "all of them" if other.parallel.strategy == ZERO3 else "those that its partition has a piece of"
    )
    found = answered(way, other, written, reading, UNIVERSAL.source)
    return replace(found, stored=made.written, conversion=made)
