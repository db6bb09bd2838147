"""What the process's exit code says."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes of every verb. `DOES_NOT_FIT` is only given when a gate was asked for."""

    ANSWERED = 0
    DOES_NOT_FIT = 1
    WRONG_INPUT = 2
    DEFECT = 3
    INTERRUPTED = 130  # 128 + SIGINT, as a shell reports it
    BROKEN_PIPE = 141  # 128 + SIGPIPE: the reader went away, so nobody read an answer
