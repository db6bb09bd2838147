"""`python -m trainledger`: the command line without its script on the path."""

from __future__ import annotations

from trainledger.cli.start import run

if __name__ == "__main__":
    run()
