"""The trace against a run that nothing watches: the CPU allocator's own events of the same script."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from trainledger.evidence.trace.live.attention import AttentionSite  # noqa: E402
from trainledger.evidence.trace.live.passes import like_cuda  # noqa: E402
from trainledger.evidence.trace.live.selftest import selftest  # noqa: E402
from trainledger.evidence.trace.live.session import Session, Where, without_storage  # noqa: E402
from trainledger.evidence.trace.record import Record, as_data, from_data  # noqa: E402
from trainledger.lines.moments import BACKWARD, FORWARD, INIT, OPTIMIZER  # noqa: E402

PLAIN = {
    "hidden_size": 64, "intermediate_size": 192, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 256,
}  # fmt: skip
LLAMA = {**PLAIN, "num_key_value_heads": 2, "model_type": "llama"}
GPT2 = {
    "model_type": "gpt2", "n_embd": 64, "n_layer": 2, "n_head": 4, "vocab_size": 256, "n_positions": 64,
    "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0,
}  # fmt: skip
QWEN3 = {**PLAIN, "num_key_value_heads": 2, "head_dim": 16, "model_type": "qwen3", "tie_word_embeddings": True}
NOISE, RNG_STATE = 16, 5056  # bytes: scalars of the loop, and the host's random state that a checkpoint keeps
BATCH, SEQUENCE, STEPS = 1, 32, 3


def model_of(config: dict[str, Any], recompute: bool | None, device: str) -> Any:
    body = dict(config)
    made = transformers.AutoConfig.for_model(body.pop("model_type"), **body)
    made.use_cache = False
    with torch.device(device):
        model = transformers.AutoModelForCausalLM.from_config(made, attn_implementation="eager")
    model.train()
    if recompute is not None:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": recompute})
    return model


def steps(model: Any, ids: Any, session: Session | None, micros: int = 1) -> Any:
    """The script, of that many micro-batches a step: what it returns it still holds."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    loss = None
    for step in range(1, STEPS + 1):
        for _ in range(micros):
            if session:
                session.enter(FORWARD, step)
            loss = model(input_ids=ids, labels=ids).loss / micros
            if session:
                session.forwarded()
                session.enter(BACKWARD, step)
            loss.backward()
        if session:
            session.backwarded()
            session.enter(OPTIMIZER, step)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
    return loss, optimizer


def traced(config: dict[str, Any], recompute: bool | None, micros: int = 1) -> Record:
    session = Session(Where(AttentionSite()))
    model = model_of(config, recompute, "meta")
    without_storage(model, session.mode)
    with session.running():
        session.enter(INIT)
        session.adopt(model)
        ids = session.tensor("ids", (BATCH, SEQUENCE))
        session.keep(steps(model, ids, session, micros))
    return session.record()


@contextmanager
def one_thread() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def unwatched(config: dict[str, Any], recompute: bool | None, micros: int) -> list[int]:
    """Sizes of the CPU allocator's own events of the same script, on real tensors, no mode active."""
    model = model_of(config, recompute, "cpu")
    ids = torch.zeros((BATCH, SEQUENCE), dtype=torch.int64)
    with ExitStack() as stack:
        stack.enter_context(one_thread())
        stack.enter_context(like_cuda(AttentionSite()))
        profile = stack.enter_context(torch.profiler.profile(profile_memory=True))
        kept = steps(model, ids, None, micros)
    del kept
    events = profile.profiler.kineto_results.events()
    memory = [(e.start_ns(), place, e.nbytes()) for place, e in enumerate(events) if e.name() == "[memory]"]
    return [size for *_, size in sorted(memory) if NOISE < abs(size) != RNG_STATE]


def own_events(record: Record) -> list[int]:
    """Sizes of the trace's events after building; what lives only inside CUDA's kernels is left out."""
    found = []
    for moment, events in record.stretches:
        for event in events:
            birth = record.births[abs(event) - 1]
            if moment != INIT and birth.size > NOISE and not birth.op.startswith("kernel: "):
                found.append(birth.size if event > 0 else -birth.size)
    return found


def peak(sizes: list[int]) -> int:
    total = most = 0
    for size in sizes:
        total += size
        most = max(most, total)
    return most


CASES = [(name, recompute, 1) for name in ("llama", "gpt2", "qwen3") for recompute in (None, False, True)]
CASES += [("llama", None, 2), ("gpt2", None, 2)]
CONFIGS = {"llama": LLAMA, "gpt2": GPT2, "qwen3": QWEN3}


@pytest.mark.parametrize(("name", "recompute", "micros"), CASES)
def test_events_are_those_of_the_allocator(name: str, recompute: bool | None, micros: int) -> None:
    """Every event, in order (a CPU kernel's own temporaries come and go between two of them), and the peak, to the
    byte."""
    real = unwatched(CONFIGS[name], recompute, micros)
    ours = own_events(traced(CONFIGS[name], recompute, micros))
    place = 0
    for size in ours:
        skipped = 0
        while place < len(real) and (real[place] != size or skipped):
            skipped += real[place]
            place += 1
        assert place < len(real), size
        place += 1
    assert peak(real) == peak(ours)


def test_a_record_goes_through_json() -> None:
    record = traced(LLAMA, None)
    assert from_data(as_data(record)) == record


def test_steps_repeat() -> None:
    """Step 3 is as step 2: same sizes in the same order."""
    record = traced(LLAMA, False)
    sizes: dict[str, list[int]] = {}
    for moment, events in record.stretches:
        step, _, phase = moment.partition(": ")
        found = sizes.setdefault(f"{phase} {step}", [])
        found += [record.births[abs(event) - 1].size * (1 if event > 0 else -1) for event in events]
    for phase in ("forward", "loss", "backward", "optimizer"):
        assert sizes[f"{phase} step 2"] == sizes[f"{phase} step 3"]


def test_selftest_passes() -> None:
    selftest()
