"""An embedding table in a published benchmark, whose process holds what torch.compile compiled before.

Sources: liger_kernel/ops/experimental/embedding.py (0.2.1), torch's embedding_dense_backward, and the benchmark's
script: it measures speed first, then memory, over all widths, implementations and numbers of rows.
"""

from __future__ import annotations

from collections.abc import Callable

from trainledger.base.dims import Axis, Dim, Dims, elements
from trainledger.facts.dtypes import INT64
from trainledger.facts.operator_kernels import EMBEDDING_SWEEP
from trainledger.ledger import nn
from trainledger.ledger.operator_tools import entry, parameter
from trainledger.ledger.operator_writers import OperatorRun, Written
from trainledger.ledger.tape import Code, Prim, Step, Tape

COMPILED = "torch_compile"


def embedding(run: OperatorRun) -> Written:
    """Rows of a table for `B` x `T` ids; each repetition draws the result's gradient."""
    t = run.tape()
    width, entries = Axis(Dim.HIDDEN, run.size("D")), Axis(Dim.VOCAB, run.size("V"))
    tokens: Dims = (Axis(Dim.BATCH, run.size("B")), Axis(Dim.SEQUENCE, run.size("T")))
    ids = entry(t, "ids", tokens, INT64, False)
    table = parameter(t, "embedding.weight", (entries, width), run.element)
    t.scope = "embedding"
    dims = (*tokens, width)
    # Liger's kernel and Inductor's add to the table's gradient in place
    out = nn.embedding(t, ids, table, dims) if run.implementation == "huggingface" else _added(t, ids, table, dims)
    given = (INT64.bytes_of(elements(tokens)), _held_before(run))
    return Written(t, (), (table,), (out,), given, drawn=True)


def _added(t: Tape, ids: int, table: int, dims: Dims) -> int:
    out = t.fresh(dims, t.dtype[table], True, "output")
    return t.run(Prim("embedding", (table, ids), (out,), (ids,), (Step(Code.GRAD, 0),), ()))


def _held_before(run: OperatorRun) -> int:
    """Bytes of tables and their gradients that torch.compile keeps from earlier runs of the same process."""
    sweep, width, entries = EMBEDDING_SWEEP, run.size("D"), run.size("V")
    if width not in sweep.widths or entries not in sweep.rows:
        raise ValueError("not a run of the published benchmark")
    rows = sum(sweep.rows)
    held = sweep.before * rows * sweep.widths[-1]
    held += sum(sweep.each * rows * earlier for earlier in sweep.widths[: sweep.widths.index(width)])
    if run.implementation == COMPILED:
        if width == sweep.widths[-1] and entries > sweep.sure:
            raise ValueError("what Python's garbage collector had freed by then is not known")
        held += sweep.each * width * sum(sweep.rows[: sweep.rows.index(entries)])
    return run.element.bytes_of(held)


WRITERS: dict[tuple[str, str], Callable[[OperatorRun], Written]] = {
    ("embedding", implementation): embedding for implementation in ("liger", "huggingface", COMPILED)
}
