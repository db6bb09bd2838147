"""A trace whose bytes are known beforehand: where it comes out otherwise, this torch is not one that can be traced."""

from __future__ import annotations

from typing import Any

import torch

from trainledger.base.problems import TraceError
from trainledger.evidence.trace.live.attention import AttentionSite
from trainledger.evidence.trace.live.session import Session, Where, without_storage
from trainledger.facts.trace import SELF_TEST
from trainledger.lines.line import Account
from trainledger.lines.moments import BACKWARD, FORWARD, INIT


def selftest() -> None:
    """One linear layer: weights, input, output, loss and gradient, each born and dead where it should be.

    Raises TraceError that says what came out otherwise.
    """
    site = AttentionSite()
    session = Session(Where(site))
    with torch.device("meta"):
        model: Any = torch.nn.Linear(SELF_TEST.width, SELF_TEST.width, bias=False)
    without_storage(model, session.mode)
    with session.running():
        session.enter(INIT)
        session.adopt(model)
        x = session.tensor("x", (SELF_TEST.rows, SELF_TEST.width), torch.float32)
        session.enter(FORWARD, 1)
        loss = model(x).sum()
        session.forwarded()
        session.enter(BACKWARD, 1)
        loss.backward()
        session.backwarded()
        del loss
        left = session.ledger.bytes
    record = session.record()
    square, rows = model.weight.nbytes, x.nbytes
    found = {account: sum(one.size for one in record.births if one.account == account) for account in Account}
    wanted = {Account.WEIGHTS: square, Account.GRADIENTS: square, Account.INPUTS: rows}
    wrong = [f"{one.value} {found[one]} B for {size}" for one, size in wanted.items() if found[one] != size]
    if left != square + square + rows:
        wrong.append(f"{left} B left for {square + square + rows}")
    if wrong:
        raise TraceError(f"torch {torch.__version__} cannot be traced: the self-test found {', '.join(wrong)}")
