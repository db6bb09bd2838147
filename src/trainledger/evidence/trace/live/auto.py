"""Finds the moments of a script that does not say them: by its modules' calls, its backward, its optimizer's steps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from trainledger.evidence.trace.live.optimizers import counts_on_host
from trainledger.evidence.trace.live.session import Session
from trainledger.lines.moments import BACKWARD, CLIP, FORWARD, OPTIMIZER


class Auto:
    """Tells a session where its moments begin.

    A forward begins with the call of a module, backward with the first operation that autograd makes, and what comes
    between backward and the optimizer's step is clipping. The next forward after a step begins the next step.
    """

    def __init__(self, session: Session) -> None:
        self.session = session
        self.model: Any = None
        self.stepped = False
        session.auto = self

    @contextmanager
    def watching(self, watcher: Any) -> Iterator[None]:
        """While the code runs."""
        watcher.behind = self.operation
        hooks = [
            register_optimizer_step_pre_hook(lambda optimizer, *_: self.steps(optimizer)),
            register_optimizer_step_post_hook(lambda optimizer, *_: self.done(optimizer)),
        ]
        try:
            yield
        finally:
            watcher.behind = None
            for hook in hooks:
                hook.remove()

    def called(self, module: Any) -> None:
        """A module is called that no other one calls: the first that has parameters is the model."""
        if self.model is None and next(module.parameters(), None) is not None:
            self.model = module
            self.session.adopt(module)
        session = self.session
        phase = session.ledger.phase
        if phase == BACKWARD and torch.is_grad_enabled() and torch._C._current_autograd_node() is None:
            session.backwarded()
        elif phase == BACKWARD or (phase == FORWARD and session.step):
            return
        session.enter(FORWARD, session.step + 1 if self.stepped or not session.step else session.step)
        self.stepped = False

    def operation(self, behind: bool) -> None:
        """An operation runs: whether autograd's backward makes it."""
        session = self.session
        if behind and session.ledger.phase not in (BACKWARD, OPTIMIZER) and session.step:
            session.forwarded()
            session.enter(BACKWARD, session.step)
        elif not behind and session.ledger.phase == BACKWARD and not session.watcher.stack:
            session.backwarded()
            session.enter(CLIP, session.step)

    def steps(self, optimizer: Any) -> None:
        """The optimizer's step begins."""
        session = self.session
        session.watcher.counts_on_host = counts_on_host(optimizer)
        if session.ledger.phase == BACKWARD:
            session.backwarded()
        session.enter(OPTIMIZER, max(session.step, 1))

    def done(self, optimizer: Any) -> None:
        """The optimizer's step is done."""
        self.session.stepped(optimizer)
        self.stepped = True
