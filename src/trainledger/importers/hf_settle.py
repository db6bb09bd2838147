"""What only several files together settle of a run with Transformers, accelerate or DeepSpeed: the strategy, the dtypes
that it makes of bf16, and the defaults that hold under it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from trainledger.facts.import_deepspeed import NO_CLIP, PLUGIN
from trainledger.facts.import_hf_filled import (
    DDP,
    FSDP_STATES,
    FSDP_VERSION,
    LIGER_LOSS,
    REFERENCED,
    SFT,
    TRAINER_FILLED,
    TRL_BETA,
    TRL_FILLED,
    TRL_REFERENCE,
    TRL_ZERO3,
    UNUSED,
    filled,
    holds,
    trl_loss,
)
from trainledger.facts.import_rows import FilledRow
from trainledger.facts.preferences import ALONE, SAMPLED
from trainledger.facts.sharding import FIRST, SECOND
from trainledger.facts.versions import NEWEST, at_least
from trainledger.importers.deepspeed_json import MICRO, ON, STEPS
from trainledger.importers.hf_fsdp import FULL, GRADIENTS, HYBRID, HYBRID_GRADIENTS, NONE, OPTIONS
from trainledger.importers.hf_offload import activations
from trainledger.importers.hf_precision import precision
from trainledger.importers.hf_roles import DEFAULT, LOSS_TYPE
from trainledger.importers.hf_roles import REFERENCED as REFERENCE
from trainledger.importers.piece import AUTO, Filled, Given, Piece, Rank

RUN, KIND = "run.on", "run.kind"


def settle(pieces: Sequence[Piece], versions: Mapping[str, str]) -> Piece | None:
    """One more piece, made of all others; None where neither a Trainer, accelerate nor DeepSpeed runs.

    It says what the others leave open (`filled`), and above them what follows of them together (`given`).
    """
    names = {name for piece in pieces for name in piece.facts}
    if not names & {RUN, ON, "accelerate.on", "fsdp.on"}:
        return None
    joined = Joined(pieces, versions)
    joined.run()
    return joined.piece


RELEASE = "stack.versions."


class Joined:
    """The facts and keys of all pieces; of two that say one thing, the higher rank's."""

    def __init__(self, pieces: Sequence[Piece], versions: Mapping[str, str]) -> None:
        self.pieces = pieces
        ordered = sorted(pieces, key=lambda piece: piece.rank)
        self.facts: dict[str, Given] = {name: one for piece in ordered for name, one in piece.facts.items()}
        self.given: dict[str, Given] = {path: one for piece in ordered for path, one in piece.given.items()}
        self.filled: dict[str, Filled] = {path: one for piece in ordered for path, one in piece.filled.items()}
        said: dict[str, Given | Filled] = {**self.filled, **self.given}
        known = {path: str(one.value) for path, one in said.items() if path.startswith(RELEASE)}
        self.versions = {**{path.removeprefix(RELEASE): value for path, value in known.items()}, **versions}
        self.piece = Piece("", "", rank=Rank.SETTLED)
        self.trainer = RUN in self.facts
        self.trl = KIND in self.facts

    def fact(self, name: str, default: object = None) -> object:
        """A fact's value."""
        return self.facts[name].value if name in self.facts else default

    def where(self, *names: str) -> str:
        """The place of the first of these facts that is there."""
        return next((self.facts[name].where for name in names if name in self.facts), "")

    def value(self, path: str) -> object:
        """What is said of a key so far; null where nothing is."""
        for held in (self.piece.given, self.given):
            if path in held and held[path].value != AUTO:
                return held[path].value
        for rows in (self.piece.filled, self.filled):
            if path in rows:
                return rows[path].value
        return None

    def said(self, path: str) -> bool:
        """Whether a file says this key."""
        return path in self.given and self.given[path].value != AUTO

    def fill(self, row: FilledRow, value: object = None) -> None:
        """Take a row's default (or another value under its reason), unless another piece has one."""
        if row.path not in self.filled:
            self.piece.fill(row.path, row.value if value is None else value, row.why, row.source)

    def say(self, path: str, value: object, where: str) -> None:
        """Say a key unless a file says it itself; with the place of a default it is one."""
        if self.said(path):
            return
        if where.startswith(DEFAULT):
            known = (one.source for one in self.facts.values() if one.where == where and one.source is not None)
            self.piece.fill(path, value, where.removeprefix(DEFAULT), next(known, TRAINER_FILLED[0].source))
        else:
            self.piece.give(path, value, where)

    def run(self) -> None:
        """Settle everything, in the order in which one thing needs another."""
        self._ranks()
        self._defaults()
        self._strategy()
        precision(self)
        activations(self)
        self._adapter()
        self._optimizer()
        self._agreement()

    def _ranks(self) -> None:
        """What else the launcher says: ranks, and settings of its own that count where nothing else says them."""
        if "launch.open" in self.facts and not self.said("parallel.world"):
            named = str(self.fact("launch.open"))
            found = f"{named} is known on the machine only" if named else "as many ranks as the machine has devices"
            fix = "Say it: --set parallel.world=8, or --env for a variable of the script."
            self.piece.refuse("parallel.world", found, "the number of ranks is needed", fix, self.where("launch.open"))
        self._mesh()
        shards = {"fsdp.on", "deepspeed.stage"} & set(self.facts) and self.fact("deepspeed.stage") != 0
        known = "launch.open" in self.facts or self.said("parallel.world") or self.value("parallel.dp") is not None
        if shards and not known:
            where = self.where("fsdp.on", "deepspeed.stage")
            fix = "Give the command or accelerate's file too, or --set parallel.world=8."
            self.piece.refuse("parallel.world", "missing", "no file says over how many ranks it shards", fix, where)
        steps = self.facts.get("accelerate.steps")
        if steps and not self.said("batch.accumulation"):
            self.piece.given["batch.accumulation"] = steps
        if self.fact("deepspeed.init") is False and self.value("parallel.strategy") == "zero3":
            self.piece.give("parallel.options.zero_init", False, self.where("deepspeed.init"))
        base = self.facts.get("model.base")
        if base and not self.said("model"):
            self.piece.given["model"] = base

    def _defaults(self) -> None:
        rows: list[FilledRow] = []
        if self.trl:
            rows += filled(TRL_FILLED, self.versions.get("trl"))
            rows += trl_loss(str(self.value("task") or SFT), self.versions.get("trl"), self.fact(LOSS_TYPE))
        if self.trainer:
            rows += TRAINER_FILLED
        for row in rows:
            if not row.path.startswith("run."):
                self.fill(row)
            elif row.path not in self.facts:
                self.facts[row.path] = Given(row.value, f"{DEFAULT}{row.why}")
        whole = self.trl and self.value("adapter.kind") is None
        ahead = self.said("stack.options.precompute_ref_log_probs")
        if whole and not ahead and self.value("task") in REFERENCED:
            self.fill(TRL_REFERENCE)
        if whole and self.value("task") == SAMPLED:
            self._reference()
        if self.value("stack.recompute.kind") == "none":
            for held in (self.piece.filled, self.filled):
                held.pop("stack.recompute.reentrant", None)
        if "run.loss" in self.facts and not self._reads_logits():
            self.piece.give("stack.loss", self.fact("run.loss"), self.where("run.loss"))
        framework = (
            "deepspeed"
            if ON in self.facts and not self.trainer and "accelerate.on" not in self.facts
            else "transformers"
        )
        self.piece.fill("stack.framework", framework, "what runs these files", TRAINER_FILLED[0].source)
        packages = {"accelerate": framework == "transformers", "trl": self.trl, "deepspeed": ON in self.facts}
        for name in (one for one, used in packages.items() if used and one not in self.versions):
            newest = NEWEST[name]
            self.piece.fill(f"stack.versions.{name}", newest.version, "the newest version known", newest.source)

    def _reference(self) -> None:
        """The reference of sampled sequences, a model of its own: an adapter that is switched off is its own."""
        if self.fact(REFERENCE):
            self.say(TRL_BETA.path, TRL_BETA.value, self.where(REFERENCE))
        elif REFERENCE not in self.facts and holds(TRL_BETA, self.versions.get("trl")):
            self.fill(TRL_BETA)

    def _reads_logits(self) -> bool:
        """Whether a trainer over preferences reads all logits though the model's own loss is fused."""
        task, release = self.value("task"), self.versions.get("trl")
        fused = "run.liger_loss" in self.facts or (self.trl and at_least(release, LIGER_LOSS.since))
        return task in ALONE or (task in (*REFERENCED, SAMPLED) and not fused)

    def _strategy(self) -> None:
        if ON in self.facts:
            if "fsdp.on" in self.facts:
                found, where = "both DeepSpeed and FSDP are asked for", self.where("fsdp.on")
                self.piece.refuse("parallel.strategy", found, "one of them shards", "Leave one out.", where)
        elif "fsdp.on" in self.facts:
            self._fsdp()
        elif "parallelism.shard" in self.facts and self.fact("parallelism.shard") != 1:
            self.piece.give("parallel.strategy", "fsdp2", self.where("parallelism.shard"))
        elif self.value("parallel.world") not in (None, 1) or "launch.ddp" in self.facts:
            self._ddp()

    def _ddp(self) -> None:
        if self.value("parallel.world") == 1 or self.said("parallel.strategy"):
            return
        self.piece.fill("parallel.strategy", "ddp", "the Trainer wraps the model in DDP", DDP)
        for name in ("find_unused_parameters", "bucket_cap_mb", "broadcast_buffers", "static_graph"):
            if f"ddp.{name}" in self.facts:
                self.say(f"parallel.options.{name}", self.fact(f"ddp.{name}"), self.where(f"ddp.{name}"))
        if self.trainer:
            recomputed = self.value("stack.recompute.kind") not in (None, "none")
            self.fill(UNUSED, not recomputed)

    def _fsdp(self) -> None:
        version = self.fact("fsdp.version")
        where = self.where("fsdp.version", "fsdp.on")
        if version is None and "fsdp.trainer" in self.facts:
            row = filled(FSDP_VERSION, self.versions.get("transformers"))[0]
            version, where = row.value, f"{DEFAULT}{row.why}"
        elif version is None:
            version, where = FIRST, f"{DEFAULT}fsdp_version 1"
        if "fsdp.trainer" in self.facts and not self.said(FSDP_STATES.path):
            for row in filled((FSDP_STATES,), self.versions.get("transformers")):
                self.fill(row)
        shape = str(self.fact("fsdp.strategy", FULL))
        after = self.fact("fsdp.reshard", shape not in (GRADIENTS, HYBRID_GRADIENTS))
        hybrid = shape in (HYBRID, HYBRID_GRADIENTS) or self.fact("parallelism.replicate", 1) not in (None, 1)
        name = "hsdp" if hybrid else "fsdp1-noshard" if shape == NONE else "fsdp2" if version == SECOND else "fsdp1"
        self.piece.give("parallel.strategy", name, self.where("fsdp.strategy", "fsdp.on"))
        self.piece.give("parallel.reshard_after_forward", after, self.where("fsdp.reshard", "fsdp.strategy", "fsdp.on"))
        if hybrid:
            self.say("parallel.options.fsdp_version", version, where)
            self._hybrid()
        if version == FIRST:
            for option in OPTIONS:
                if f"fsdp.{option}" in self.facts:
                    place = self.where(f"fsdp.{option}")
                    self.piece.give(f"parallel.options.{option}", self.fact(f"fsdp.{option}"), place)
            if shape in (GRADIENTS, HYBRID_GRADIENTS):
                word = shape if shape == GRADIENTS else f"_{shape}"
                self.piece.give("parallel.options.sharding_strategy", word, self.where("fsdp.strategy"))

    def _mesh(self) -> None:
        """The data-parallel degree of a mesh, where no launcher says how many ranks there are."""
        sizes = [self.fact(f"parallelism.{name}") for name in ("replicate", "shard")]
        if any(isinstance(size, int) for size in sizes) and not self.said("parallel.world"):
            where = self.where("parallelism.shard", "parallelism.replicate")
            self.piece.give("parallel.dp", prod(size for size in sizes if isinstance(size, int)), where)

    def _hybrid(self) -> None:
        """The ranks over which a hybrid shards: those of one node, or the mesh's own size."""
        shard = self.fact("parallelism.shard") or self.fact("launch.per_node")
        if isinstance(shard, int):
            self.piece.give(
                "parallel.shard", shard, self.where("parallelism.shard", "launch.per_node", "fsdp.strategy")
            )

    def _adapter(self) -> None:
        """What TRL does where an adapter is trained under ZeRO-3."""
        zero3 = self.value("parallel.strategy") == "zero3" and self.value("adapter.kind") is not None
        does = self.trl and holds(TRL_ZERO3, self.versions.get("trl"))
        if does and zero3 and self.value("stack.recompute.kind") == "full":
            where = f"{self.where('deepspeed.stage')} ({TRL_ZERO3.why})"
            self.piece.give(TRL_ZERO3.path, TRL_ZERO3.value, where)

    def _optimizer(self) -> None:
        """Which step runs: DeepSpeed's own, the host's where states are there, the Trainer's."""
        if ON not in self.facts:
            return
        where = self.where("deepspeed.optimizer", ON)
        away = self.value("offload.optimizer") is not None
        if away and self.value("optimizer.name") in (None, "adamw", "adam"):
            self.piece.give("optimizer.implementation", "cpu", where)
        elif "deepspeed.optimizer" in self.facts:
            self.piece.give("optimizer.implementation", self.fact("deepspeed.optimizer") or None, where)
        if self.fact("deepspeed.clip") is None and "deepspeed.clip" in self.facts:
            self.piece.given.pop("optimizer.grad_clip", None)
            self.piece.give("optimizer.grad_clip", NO_CLIP.value, f"{self.where(ON)} ({NO_CLIP.why})")
        elif self.fact("deepspeed.clip") == AUTO and not self.said("optimizer.grad_clip"):
            self.piece.fill("optimizer.grad_clip", PLUGIN[1].value, PLUGIN[1].why, PLUGIN[1].source)

    def _agreement(self) -> None:
        """Numbers in DeepSpeed's file that the run's arguments contradict: the Trainer refuses them."""
        if not self.trainer:
            return
        for half, other in (("bf16", "fp16"), ("fp16", "bf16")):
            if self.fact(f"deepspeed.{half}") is True and self.fact(f"run.{other}") is True:
                where = self.where(f"deepspeed.{half}")
                found = f"{half} at {where} and {other} at {self.where(f'run.{other}')}"
                fix = f'Set {half}.enabled to "auto", or agree.'
                self.piece.refuse(f"{half}.enabled", found, "both files say it, and differ", fix)
        for name, path in ((MICRO, "batch.micro_batch"), (STEPS, "batch.accumulation")):
            mine = self.facts.get(f"deepspeed.{name}")
            theirs = next((p.given[path] for p in self.pieces if path in p.given and p.given[path] is not mine), None)
            if mine and theirs and theirs.value not in (mine.value, AUTO):
                found = f"{mine.value} at {mine.where} and {theirs.value} at {theirs.where}"
                self.piece.refuse(path, found, "the Trainer wants both files to agree", f'Set {name} to "auto".')
