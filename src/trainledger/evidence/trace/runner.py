"""Runs a trace in a process of its own: what crashes there, or takes too long, is an error message here."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from queue import Empty, Queue
from time import monotonic
from typing import IO, Any

from trainledger.base.problems import TraceError
from trainledger.evidence.trace.job import Job, Report, as_data
from trainledger.evidence.trace.record import Record, from_data

WORKER = "trainledger.evidence.trace.live.worker"
RECORD, ERROR, PROGRESS = "record", "error", "progress"


def run_job(job: Job, report: Report = lambda text: None, timeout: float = 600.0) -> Record:
    """Trace a job; `report` is told what is being done, `timeout` is in seconds.

    Raises TraceError, one line, when the code fails, the process dies or the time is over.
    """
    with tempfile.TemporaryFile() as complaints:
        process = subprocess.Popen(
            [sys.executable, "-m", WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints
        )
        try:
            return _listen(process, json.dumps(as_data(job)).encode(), report, monotonic() + timeout)
        except _EndedError as ended:
            raise TraceError(_last_words(process, complaints, ended)) from None
        finally:
            process.kill()
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    pipe.close()


class _EndedError(Exception):
    """The process ended without a record; `late`: its time was over."""

    def __init__(self, last: str, late: bool) -> None:
        super().__init__(last)
        self.last, self.late = last, late


def _listen(process: subprocess.Popen[bytes], job: bytes, report: Report, until: float) -> Record:
    assert process.stdin is not None
    assert process.stdout is not None
    said: Queue[bytes] = Queue()
    threading.Thread(target=_read, args=(process.stdout, said), daemon=True).start()
    try:
        process.stdin.write(job)
        process.stdin.close()
    except BrokenPipeError:
        pass  # it says on its way out why it went
    last = ""
    while True:
        try:
            line = said.get(timeout=max(until - monotonic(), 0.0))
        except Empty:
            raise _EndedError(last, True) from None
        if not line:
            raise _EndedError(last, False)
        kind, value = _message(line)
        if kind == RECORD:
            return from_data(value)
        if kind == ERROR:
            raise TraceError(str(value))
        last = str(value)
        report(last)


def _read(pipe: IO[bytes], said: Queue[bytes]) -> None:
    for line in pipe:
        said.put(line)
    said.put(b"")


def _message(line: bytes) -> tuple[str, Any]:
    kind, value = json.loads(line)
    return str(kind), value


def _last_words(process: subprocess.Popen[bytes], complaints: IO[bytes], ended: _EndedError) -> str:
    at = f" at {ended.last}" if ended.last else ""
    if ended.late:
        return f"the trace was not done in time, stopped{at}; give it more with --timeout"
    code = process.wait()
    complaints.seek(0)
    lines = [line.strip() for line in complaints.read().decode(errors="replace").splitlines() if line.strip()]
    told = f": {lines[-1]}" if lines else ""
    return f"the tracing process ended{at} with code {code}{told}"
