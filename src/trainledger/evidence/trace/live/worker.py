"""The process that traces: a job on standard input, messages as lines of JSON on standard output.

Whatever the traced code prints goes to standard error.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, TextIO

from trainledger.base.problems import TraceError
from trainledger.evidence.trace.job import Job, from_data
from trainledger.evidence.trace.record import as_data
from trainledger.evidence.trace.runner import ERROR, PROGRESS, RECORD


def main() -> None:
    """Trace one job."""
    out = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    job = from_data(json.loads(sys.stdin.read()))
    try:
        _say(out, RECORD, as_data(_traced(job, out)))
    except TraceError as error:
        _say(out, ERROR, str(error))


def _say(out: TextIO, kind: str, value: Any) -> None:
    out.write(json.dumps([kind, value]) + "\n")
    out.flush()


def _traced(job: Job, out: TextIO) -> Any:
    def report(text: str) -> None:
        _say(out, PROGRESS, text)

    report("importing torch")
    try:
        from trainledger.evidence.trace.live.selftest import selftest
        from trainledger.evidence.trace.live.session import where_of
    except ImportError as error:
        raise TraceError(f"the trace needs torch: {error}; pip install 'trainledger[trace]'") from None
    selftest()
    where = where_of(job)
    if job.plan is None:
        from trainledger.evidence.trace.live.script import run_script

        return run_script(job.script, where, report)
    from trainledger.evidence.trace.live.plan_run import run_plan

    return run_plan(job.plan, where, report)


if __name__ == "__main__":
    main()
