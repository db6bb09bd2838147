"""Megatron's arguments to how a plan is spread over ranks."""

from __future__ import annotations

import re
from math import gcd

from trainledger.facts.import_megatron_defaults import SHAPES
from trainledger.importers.command_ranks import Ranks
from trainledger.importers.draft import Ignored
from trainledger.importers.megatron_model import layers_of
from trainledger.importers.piece import Piece
from trainledger.importers.settings import Settings

DEGREES = (
    ("--tensor-model-parallel-size", "tp"), ("--context-parallel-size", "cp"), ("--pipeline-model-parallel-size", "pp"),
    ("--expert-model-parallel-size", "ep"), ("--expert-tensor-parallel-size", "etp"),
)  # fmt: skip
STRATEGIES = (
    ("--use-megatron-fsdp", "megatron-fsdp"), ("--use-custom-fsdp", "megatron-fsdp"), ("--use-torch-fsdp2", "fsdp2"),
    ("--use-distributed-optimizer", "megatron-distopt"),
)  # fmt: skip
LAYOUT = "--pipeline-model-parallel-layout"
EMBEDDED = ("--account-for-embedding-in-pipeline-split", "--account-for-loss-in-pipeline-split")
_REPEATED = re.compile(r"\(([^()]*)\)\*(\d{1,6})|\(([^()]*)\)")
UNKNOWN = "the file does not say how many ranks run: --set parallel.world=N says it"


def give_mesh(given: Settings, piece: Piece, ranks: Ranks) -> None:
    """Say degrees, schedule, strategy and the world."""
    degree = dict.fromkeys(("tp", "cp", "pp", "ep", "etp"), 1)
    for name, key in DEGREES:
        if given.has(name):
            found = given.whole(name)
            given.give(f"parallel.{key}", found, name)
            degree[key] = found or 1
    if given.has("--sequence-parallel") and degree["tp"] > 1:
        given.give("parallel.sp", True, "--sequence-parallel")
    name, strategy = next(((one, word) for one, word in STRATEGIES if given.has(one)), ("", ""))
    if given.text("--optimizer") == "dist_muon" if given.has("--optimizer") else False:
        name, strategy = name or "--optimizer", strategy or "megatron-distopt"
    if name:
        given.give("parallel.strategy", strategy, name)
    _words(given)
    _pipeline(given, piece, degree["pp"])
    _world(given, piece, ranks, degree)


def _words(given: Settings) -> None:
    """Options that are no flags: how context-parallel ranks exchange, how experts are balanced."""
    for name, where in (
        ("--cp-comm-type", "cp_comm_type"),
        ("--moe-router-load-balancing-type", "moe_router_load_balancing_type"),
    ):
        words = given.texts(name)
        if len(set(words)) == 1:
            given.give(f"parallel.options.{where}", words[0], name)
        elif words:
            given.refuse(name, " ".join(words), "one word for all layers can be estimated so far")


def _pipeline(given: Settings, piece: Piece, pp: int) -> None:
    """Chunks of each rank, and the schedule that follows."""
    chunks, name = _chunks(given, pp)
    for one in EMBEDDED:
        if given.has(one):
            given.give(f"parallel.options.{one.removeprefix('--').replace('-', '_')}", True, one)
    if given.has(LAYOUT):
        given.give("parallel.options.pipeline_model_parallel_layout", _layout(given), LAYOUT)
    if pp == 1:
        return
    if chunks > 1:
        given.give("parallel.vpp", chunks, name)
    piece.give(
        "parallel.schedule",
        "interleaved" if chunks > 1 else "1f1b",
        given.where(name or "--pipeline-model-parallel-size"),
    )


def _layout(given: Settings) -> str:
    """The layout's text as the program reads it: without the backslashes that keep a shell off its marks."""
    return (given.text(LAYOUT) or "").replace("\\", "")


def _chunks(given: Settings, pp: int) -> tuple[int, str]:
    """Model chunks of a rank, and the argument that says so."""
    per, stages = "--num-layers-per-virtual-pipeline-stage", "--num-virtual-stages-per-pipeline-rank"
    if sum(given.has(one) for one in (per, stages, LAYOUT)) > 1:
        given.refuse_name(per, f"given beside {stages} or {LAYOUT}", "one of them is needed")
        return 1, ""
    if given.has(stages):
        return given.whole(stages) or 1, stages
    if given.has(LAYOUT):
        count = layout_stages(_layout(given))
        if count % pp:
            given.refuse(LAYOUT, _layout(given), f"its {count} stages must be a multiple of the pipeline's {pp} ranks")
        return max(count // pp, 1), LAYOUT
    layers, each = layers_of(given), given.whole(per) if given.has(per) else None
    if layers is None or each is None:
        return 1, ""
    layers += sum(given.has(one) for one in EMBEDDED)
    if layers % (pp * each):
        given.refuse(per, each, f"{layers} layers over {pp} ranks must be a multiple of it")
        return 1, ""
    return layers // pp // each, per


def layout_stages(text: str) -> int:
    """Stages of a layout such as `Et*3|(tt|)*6mL`: parts between bars, repetitions written out."""
    text = text.replace(",", "").replace(" ", "").strip("\"'")
    bars = 0
    for match in _REPEATED.finditer(text):
        inner = match.group(1) if match.group(1) is not None else match.group(len(match.groups()))
        bars += inner.count("|") * (int(match.group(1 + 1) or 1) if match.group(1) is not None else 1)
    return bars + _REPEATED.sub("", text).count("|") + 1


def _world(given: Settings, piece: Piece, ranks: Ranks, degree: dict[str, int]) -> None:
    """All ranks: as the launcher starts them, else the fewest that hold the experts."""
    inner = degree["tp"] * degree["cp"] * degree["pp"]
    if ranks.count is not None:
        piece.give("parallel.world", ranks.count, ranks.where)
    elif (variable := re.fullmatch(r"\$\{?(\w+)\}?", ranks.open)) is not None:
        found, fix = f"{ranks.open[:60]} has no value", f"Give it with --env {variable.group(1)}=..."
        piece.refuse("parallel.world", found, "the number of ranks is needed", fix, ranks.where)
    else:
        piece.ignored.append(Ignored("parallel.world", UNKNOWN))
        spread = degree["ep"] * (degree["etp"] if given.has("--expert-tensor-parallel-size") else degree["tp"])
        copies = spread // gcd(spread, degree["tp"] * degree["cp"])
        if copies > 1:
            piece.fill("parallel.world", inner * copies, "the fewest ranks that hold the experts", SHAPES.source)
    _instances(given, ranks, inner, degree["cp"])


def _instances(given: Settings, ranks: Ranks, inner: int, cp: int) -> None:
    """Instances of the distributed optimizer, each of which shards over a part of the ranks."""
    name = "--num-distributed-optimizer-instances"
    instances = given.whole(name) if given.has(name) else None
    if instances is None or instances == 1:
        return
    given.give("parallel.options.num_distributed_optimizer_instances", instances, name)
    if ranks.count is not None and given.has("--use-distributed-optimizer") and not ranks.count % (inner * instances):
        given.give("parallel.shard", ranks.count // inner * cp // instances, name)
