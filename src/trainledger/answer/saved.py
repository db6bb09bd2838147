"""What there is to save of a run, and the files that hold it: of which tensors, written by whom."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from trainledger.answer.saved_adapter import merged, targeted
from trainledger.answer.saved_sizes import Sizes, dtype_of, saved_dtype, sized_layers
from trainledger.answer.traffic import resident
from trainledger.base.dims import elements
from trainledger.facts.checkpoints import DEFAULTS, OWN_SHARDS, STAGED, STATE_DICT_TYPE
from trainledger.facts.optimizer_bytes import shared_tensors
from trainledger.facts.phases import POLICY
from trainledger.facts.sharding import FIRST
from trainledger.ledger.rank import Ledger, trained_of, updates_of
from trainledger.ledger.strategy import fsdp_of
from trainledger.lines.line import Account, Duty
from trainledger.model.program import Model
from trainledger.model.prompts import shared_weights
from trainledger.plan.engines import deepspeed_of
from trainledger.plan.schema import Plan

RANK_0, EVERY, FIRSTS = "rank 0", "every rank", "one rank of each model-parallel part"
STATES = (Account.MASTER, Account.OPTIMIZER)
Tensors = list[tuple[tuple[int, ...], int]]  # bytes of tensors of each kind of layer, and how many equal ones
Layers = tuple[tuple[tuple[Sizes, ...], int], ...]  # weights of each kind of layer, and how many equal ones


class Holds(StrEnum):
    """What is in files of one kind."""

    WEIGHTS = "weights"
    OPTIMIZER = "optimizer"
    BOTH = "weights and optimizer"
    EXPORT = "weights for others"
    ADAPTER = "adapter"


@dataclass(frozen=True, slots=True)
class Written:
    """Files of one kind, of a role's model: `count` of them, `each` by one rank; bytes of the largest and of all.
    `once`: a checkpoint's takes the place of the last one's."""

    name: str
    what: Holds
    by: str
    bytes: int
    count: int = 1
    each: int = 1
    total: int = 0
    once: bool = False
    role: str = POLICY

    @property
    def safetensors(self) -> bool:
        """Whether they are in safetensors' format."""
        return self.name.endswith(".safetensors")


@dataclass(frozen=True, slots=True)
class Saved:
    """Tensors that a checkpoint may hold, of the whole model (bytes): of each kind of layer; weights, those that a
    second name means too (written again where each name has a tensor of its own), master weights, optimizer states.
    Of one rank: weights, and master weights with states, as it holds them. `embeddings`: weights of the base that
    stand beside an adapter; `merged`: those of the base that it is merged into, of each kind of layer, and how many
    such layers."""

    format: str
    layers: Layers
    weights: int
    again: tuple[int, ...]
    master: int
    optimizer: int
    rank_weights: int
    rank_states: int
    embeddings: int
    merged: Tensors

    @property
    def states(self) -> int:
        """Master weights and optimizer states."""
        return self.master + self.optimizer

    @property
    def tensors(self) -> Tensors:
        """Weights of each kind of layer, and how many such layers."""
        return [(tuple(one.saved for one in weights if one.saved), count) for weights, count in self.layers]


def one_file(name: str, what: Holds, size: int, once: bool = False) -> Written:
    """A file that rank 0 writes."""
    return Written(name, what, RANK_0, size, total=size, once=once)


def spread(name: str, what: Holds, sizes: tuple[int, int], count: int, by: str = EVERY) -> Written:
    """Files of several ranks: bytes of the largest, and of all together."""
    return Written(name, what, by, sizes[0], count, 1, sizes[1])


def format_of(plan: Plan) -> str:
    """The format that the plan names, else its framework's."""
    if plan.save and plan.save.format:
        return plan.save.format
    if plan.stack.framework in OWN_SHARDS and fsdp_of(plan):
        return "torch-sharded"
    if plan.stack.framework in STAGED and fsdp_of(plan) and plan.save and plan.save.asynchronous:
        return "fsdp-sharded"
    return DEFAULTS.get(plan.stack.framework, "torch")


def inner_format(plan: Plan, name: str) -> str:
    """The format that a checkpoint of this one is made of: the Trainer leaves it to DeepSpeed and FSDP."""
    if name != "trainer" or not (deepspeed_of(plan) or fsdp_of(plan)):
        return name
    return "deepspeed" if deepspeed_of(plan) else "fsdp-full" if gathers(plan) else "fsdp-sharded"


def gathers(plan: Plan) -> bool:
    """Whether FSDP's state dict is whole: as the plan says, else FSDP1's is."""
    word = str(plan.parallel.options.get(STATE_DICT_TYPE) or "").upper()
    return "FULL" in word if word else fsdp_of(plan) == FIRST


def saved_of(plan: Plan, model: Model, ledger: Ledger) -> Saved:
    """What there is to save. Of an adapter's run only what it trains is."""
    layers: Layers = tuple(sized_layers(plan, model))
    every = [one._replace(copies=count) for weights, count in layers for one in weights]
    states = sum(sum(one.states) * one.copies for one in every)
    states += sum(table.bytes for table in shared_tensors(updates_of(plan).row)) if states else 0
    trained = trained_of(plan)
    again = [one for one in shared_weights(model) if plan.adapter is None or trained(one)]
    held = [
        (line.account, line.dtype.bytes_of(elements(line.dims)) * copies)
        for line, copies in resident(ledger)
        if line.use.duty is not Duty.PASSED
    ]
    return Saved(
        format_of(plan), layers, sum(one.saved * one.copies for one in every),
        tuple(saved_dtype(plan, dtype_of(plan, one)).bytes_of(one.elements) for one in again),
        sum(one.master * one.copies for one in every), states,
        sum(size for account, size in held if account is Account.WEIGHTS),
        sum(size for account, size in held if account in STATES),
        sum(saved_dtype(plan, dtype_of(plan, one)).bytes_of(one.elements) for one in targeted(plan, model)),
        list(merged(plan, model)),
    )  # fmt: skip


def packed(tensors: Tensors, limit: int) -> list[int]:
    """Bytes of the files that layers' tensors (bytes of each, and how many such layers) fill in order up to a limit."""
    sizes: list[int] = []
    held = 0
    for layer, count in tensors:
        for size in layer * count:
            if held and held + size > limit:
                sizes.append(held)
                held = 0
            held += size
    return [*sizes, held]
