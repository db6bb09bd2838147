"""Where the program starts: nothing is imported before Ctrl-C can be answered without a traceback."""

from __future__ import annotations

import gc
import sys

from trainledger.cli.exits import ExitCode


def run() -> None:
    """The `trainledger` program: run the process's command line and exit with its code. Most of what it makes are
    tables that stay: Python looks through them for garbage more seldom than it would."""
    gc.set_threshold(100_000)
    try:
        from trainledger.cli.main import main

        code = main()
    except KeyboardInterrupt:  # while modules are imported; `main` answers its own
        print("Interrupted; no answer was written.", file=sys.stderr)
        code = ExitCode.INTERRUPTED
    sys.exit(code)
