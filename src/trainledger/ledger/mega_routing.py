"""How a plan's mixture of experts runs under Megatron-Core, and how many rows its tensors have."""

from __future__ import annotations

import math
from dataclasses import dataclass

from trainledger.facts.dtypes import DTYPES, DType
from trainledger.facts.megatron_buffers import FIXED_ROUTES, release_of
from trainledger.facts.transformer_engine import CHANGES, PACKAGE, SHIPPED
from trainledger.facts.versions import at_least
from trainledger.lines.parts import Parts
from trainledger.plan.schema import Plan

PREFIX = "moe_"
AUXILIARY = ("aux_loss", "seq_aux_loss", "global_aux_loss")


@dataclass(frozen=True, slots=True)
class Routing:
    """`dispatcher`: `allgather`: every rank is given all tokens of its group, and picks its experts'; `alltoall`:
    tokens are sent to the ranks of their experts, as often as these take them; `flex`: once to each rank. `grouped`:
    one product for all experts of a rank. `fused`: one kernel permutes. `balance`: how the router's choice is kept
    even. `wide`: the dtype of the router (None: the weights'). `capacity`: of an expert, as a factor of the mean, where
    tokens beyond it are dropped; `padded`: every expert is filled up to it. `load`: of the fullest rank, as a factor of
    the mean (0: all tokens). `forced`: logits are drawn at random. `fixed`: routes are made by deterministic
    operations. `engine`: the release of Transformer Engine whose products the router takes, whatever layers are; empty
    where it is not installed. `overlaps`: shared experts are computed while tokens travel."""

    dispatcher: str = "alltoall"
    grouped: bool = False
    fused: bool = False
    balance: str = ""
    wide: DType | None = None
    capacity: float | None = None
    padded: bool = False
    load: float = 1.0
    forced: bool = False
    fixed: bool = False
    engine: str = ""
    overlaps: bool = False

    @property
    def gathers(self) -> bool:
        """Whether every rank is given all tokens."""
        return self.dispatcher == "allgather"

    @property
    def flex(self) -> bool:
        """Whether every rank is sent a token once, however many of its experts take it."""
        return self.dispatcher == "flex"

    @property
    def auxiliary(self) -> bool:
        """Whether a loss of its own keeps the router's choice even."""
        return self.balance in AUXILIARY

    def capacity_of(self, tokens: int, experts: int, top_k: int) -> int | None:
        """The tokens of one rank that an expert takes at most; None where it takes all that come.

        Source: megatron/core/transformer/moe/moe_utils.py, get_capacity (0.14 to 0.19).
        """
        return None if self.capacity is None else math.ceil(tokens * top_k / experts * self.capacity)

    def sent(self, tokens: int, experts: int, top_k: int) -> int:
        """Rows that a rank of so many tokens sends to all experts."""
        limit = self.capacity_of(tokens, experts, top_k)
        if limit is None:
            return tokens * top_k
        return limit * experts if self.padded else min(tokens * top_k, limit * experts)

    def taken(self, tokens: int, experts: int, top_k: int, parts: Parts) -> int:
        """Rows that the fullest rank's experts are given, of all ranks that share the experts."""
        rows, group, own = self.sent(tokens, experts, top_k), parts.ep * parts.etp, experts // parts.ep
        if self.padded and self.capacity is not None:
            return rows * parts.etp
        most = tokens * group * min(top_k, own)
        found = min(math.ceil(rows * parts.etp * self.load), most) if self.load else most
        limit = self.capacity_of(tokens, experts, top_k)
        return found if limit is None else min(found, limit * own * group)

    def reached(self, tokens: int, experts: int, top_k: int, parts: Parts) -> int:
        """Tokens of all ranks that share the experts of which this rank's experts take at least one, where each token
        takes any experts with equal chance; the fullest rank's by the load."""
        every, own = tokens * parts.ep * parts.etp, experts // parts.ep
        missed = math.comb(experts - own, top_k) / math.comb(experts, top_k)
        return min(math.ceil(every * (1 - missed) * self.load), every) if self.load else every


def installed(plan: Plan) -> str:
    """Transformer Engine's release where it is known to be installed: the plan names it, or what comes with it."""
    given = plan.stack.versions
    shipped = (row.release for row in SHIPPED if given.get(row.package, "").startswith(row.version))
    return given.get(PACKAGE) or next(shipped, "")


def own_dummies(release: str) -> bool:
    """Whether experts' stand-ins are made anew in each backward."""
    return not at_least(release or None, CHANGES.shares)


def routing_of(plan: Plan) -> Routing | None:
    """As the plan says; None without experts."""
    if plan.keys().get("num_experts") is None:
        return None
    options, load = plan.parallel.options, plan.batch.expert_load
    capacity, wide = options.get("moe_expert_capacity_factor"), options.get("moe_router_dtype")
    stack = plan.stack.options
    return Routing(
        str(options.get("moe_token_dispatcher_type", "allgather")),
        bool(options.get("moe_grouped_gemm", False)),
        bool(options.get("moe_permute_fusion", False)),
        str(options.get("moe_router_load_balancing_type", "")),
        DTYPES[str(wide)] if wide else None,
        None if capacity is None else float(capacity),
        bool(options.get("moe_pad_expert_input_to_capacity", False)),
        0.0 if isinstance(load, str) else load,
        bool(stack.get("moe_router_force_load_balancing", False)),
        bool(stack.get("deterministic_mode", False)) and FIXED_ROUTES.holds(release_of(plan.stack.versions)),
        installed(plan),
        bool(options.get("moe_shared_expert_overlap", False)),
    )  # fmt: skip
