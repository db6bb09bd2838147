"""What heads have alike whose loss is walked by chunks in forward, gradients and all, in Liger's benchmarks.

Source: liger_kernel/chunked_loss/fused_linear_{distillation,ppo,preference,unpaired_preference}.py, forward and
backward: parts of the inputs' gradient are joined, and backward hands on what forward saved.
"""

from __future__ import annotations

from collections.abc import Sequence

from trainledger.ledger.tape import Code, Prim, Step, Tape


def compiled(t: Tape, kind: str, reads: tuple[int, ...], *values: int) -> int:
    """A kernel of a compiled function, which makes these values; the first of them."""
    return t.run(Prim(kind, reads, values, (), (), ()))


def sizes(tokens: int, chunk: int) -> list[int]:
    """Tokens of each chunk, of about `chunk` each, as torch.chunk divides them."""
    size = -(-tokens // max(1, tokens // chunk))
    return [min(size, tokens - start) for start in range(0, tokens, size)]


def joined(t: Tape, states: int, parts: Sequence[int]) -> int:
    """The gradient of all hidden states."""
    whole = t.fresh(t.dims[states], t.dtype[states], False, "gradient of the states")
    return t.run(Prim("cat", tuple(parts), (whole,), (), (), ()))


def handed_on(
    t: Tape, loss: int, gradients: Sequence[tuple[int, int]], beside: Sequence[int] = (), names: Sequence[int] = ()
) -> int:
    """The loss as the function returns it. `gradients`: trained tensors, each with its gradient, saved for backward,
    which hands it on; `beside`: what is saved and not handed on; `names`: what else ends with the function."""
    trained, made = zip(*gradients, strict=True)
    steps = tuple(Step(Code.TURN, at, t.store[value]) for at, value in enumerate(made))
    result = t.alias(loss)
    t.run(Prim("chunks", (*trained, loss), (result,), (*beside, *made), steps, ()))
    t.end([*beside, *made, *names])
    return result
