"""trainledger: what every rank of a training run holds in memory, line by line and moment by moment."""

from __future__ import annotations

from typing import Any

__version__ = "0.1.0"

_LAZY = {
    "AdviseResult": "trainledger.api.advise",
    "CompareResult": "trainledger.api.compare",
    "FitResult": "trainledger.api.fit",
    "InputError": "trainledger.base.problems",
    "Result": "trainledger.api.result",
    "SearchResult": "trainledger.api.search",
    "TraceError": "trainledger.base.problems",
    "TraceResult": "trainledger.api.trace",
    "advise": "trainledger.api.advise",
    "compare": "trainledger.api.compare",
    "estimate": "trainledger.api.estimate",
    "export": "trainledger.api.export",
    "fit": "trainledger.api.fit",
    "search": "trainledger.api.search",
    "trace": "trainledger.api.trace",
    "tracing": "trainledger.api.trace",
}


def __getattr__(name: str) -> Any:
    """The library's names, imported when they are first used: `import trainledger` alone stays light.

    Their types stand in the stub beside this file.
    """
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
