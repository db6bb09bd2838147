"""Every rule of the house over the source as it stands, and for every rule code that breaks it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from tests.house import rules
from tests.house.rules import Checker, parse

LONG_FILE = '"""Long."""\n' + "x = 0\n" * 300
LONG_FUNCTION = "def f():\n" + "    x = 0\n" * 39
SHORT_FUNCTION = "def f():\n" + "    x = 0\n" * 38
WIDE_CLASS = "@dataclass(frozen=True, slots=True)\nclass C:\n" + "".join(f"    f{i}: int\n" for i in range(13))
NARROW_CLASS = "@dataclass(frozen=True, slots=True)\nclass C:\n" + "".join(f"    f{i}: int\n" for i in range(12))
MIRROR = "class C(BaseModel):\n" + "".join(f"    f{i}: int\n" for i in range(40))
COMMAND = 'def estimate(a, b, c, d, e, f: bool = typer.Option(False, "--json")): ...'


@dataclass(frozen=True, slots=True)
class Rule:
    """A checker, code that it must refuse and code that it must accept, each as (layer, text)."""

    check: Checker
    broken: tuple[tuple[str, str], ...]
    kept: tuple[tuple[str, str], ...]


RULES = (
    Rule(
        rules.scaling_literals,
        (
            ("ledger", "x = hidden * 34"),
            ("ledger", "x = 2 * size"),
            ("model", "x = size // 8"),
            ("lines", "x = size / 1.5"),
            ("plan", "x = size % 512"),
            ("answer", "x = size ** 2"),
            ("show", "x = 2**30"),
            ("cli", "x = size << 20"),
            ("ledger", "x = size >> 3"),
            ("ledger", "x = size * -2"),
            ("ledger", "def f(x):\n    x *= 4"),
            ("", "def f(x): return (x + 1) * 2.0"),
        ),
        (
            ("facts", "x = hidden * 34"),
            ("base", "KIB = 2**10"),
            ("ledger", "x = size * 1 // -1 * 0"),
            ("ledger", "x = '-' * 80"),
            ("ledger", "x = [0] * 3 + 3 * [0] + (0,) * 2"),
            ("ledger", "x = 'size %d' % 5"),
            ("ledger", "x = size + 2"),
            ("ledger", "x = size * factor"),
        ),
    ),
    Rule(
        rules.module_constants,
        (
            ("ledger", "BLOCK = 512"),
            ("ledger", "BLOCK: int = 512"),
            ("model", "TABLE = {'a': 3}"),
            ("lines", "ROWS = (Row('a', 0.5),)"),
            ("answer", "if True:\n    SHARE = -0.1"),
            ("cli", "WIDTH = 80"),
        ),
        (
            ("facts", "BLOCK = 512"),
            ("base", "BLOCK = 512"),
            ("ledger", "NONE = 0\nONE = -1\nYES = True\nNAME = 'x'"),
            ("ledger", "def f():\n    digits = 2"),
            ("ledger", "class C:\n    digits: int = 2"),
        ),
    ),
    Rule(
        rules.outside_arithmetic,
        (
            ("show", "x = line.bytes + other.bytes"),
            ("show", "x = size / total"),
            ("web", "x = size - used"),
            ("cli", "x = size * ranks"),
            ("api", "x = sum(line.bytes for line in lines)"),
            ("show", "total = 0\nfor line in lines:\n    total += line.bytes"),
            ("show", "from operator import add"),
            ("api", "import math"),
        ),
        (
            ("show", "x = 'a' + name + f'{size}'"),
            ("show", "x = [first] + rest"),
            ("show", "x = index + 1"),
            ("show", "x = ', '.join(names) + end"),
            ("show", "x = format_size(size) + end"),
            ("show", "x: int | None = max(sizes)"),
            ("answer", "x = size / total"),
        ),
    ),
    Rule(rules.long_files, (("ledger", LONG_FILE),), (("ledger", "x = 0\n" * 299),)),
    Rule(rules.long_functions, (("ledger", LONG_FUNCTION),), (("ledger", SHORT_FUNCTION),)),
    Rule(
        rules.wide_functions,
        (
            ("ledger", "def f(a, b, c, d, e, f): ..."),
            ("ledger", "def f(a, b, /, c, *, d, e, **f): ..."),
            ("ledger", COMMAND),
            ("cli", "def helper(a, b, c, d, e, f): ..."),
            ("ledger", "class C:\n    def f(self, a, b, c, d, e, f): ..."),
        ),
        (
            ("ledger", "def f(a, b, c, d, e): ..."),
            ("ledger", "class C:\n    def f(self, a, b, c, d, e): ..."),
            ("cli", COMMAND),
        ),
    ),
    Rule(
        rules.wide_dataclasses,
        (("ledger", WIDE_CLASS), ("show", WIDE_CLASS)),
        (("ledger", NARROW_CLASS), ("plan", MIRROR)),
    ),
    Rule(
        rules.mutable_dataclasses,
        (
            ("base", "@dataclass\nclass C: ..."),
            ("facts", "@dataclass()\nclass C: ..."),
            ("ledger", "@dataclass(frozen=True)\nclass C: ..."),
            ("answer", "@dataclasses.dataclass(slots=True, frozen=False)\nclass C: ..."),
        ),
        (("base", "@dataclass(frozen=True, slots=True)\nclass C: ..."), ("plan", "class C(BaseModel): ...")),
    ),
    Rule(
        rules.effects,
        (
            ("facts", "import os"),
            ("plan", "from pathlib import Path"),
            ("model", "def f():\n    import time"),
            ("lines", "from datetime import date"),
            ("ledger", "x = open('plan.yaml')"),
            ("answer", "print('x')"),
            ("allocator", "import torch"),
            ("base", "import urllib.request"),
            ("facts", "from importlib.resources import files"),
            ("facts", "import importlib.metadata"),
            ("lines", "def f():\n    global x\n    x = 0"),
        ),
        (
            ("importers", "import os"),
            ("facts", "from importlib import import_module"),
            ("cli", "print('x')"),
            ("base", "from dataclasses import dataclass\nimport re\nPATTERN = re.compile('x')"),
        ),
    ),
    Rule(
        rules.heavy_imports,
        (("importers", "import torch"), ("evidence", "from transformers import AutoConfig")),
        (("importers", "def f():\n    import torch"), ("importers", "import torchless")),
    ),
    Rule(
        rules.undocumented,
        (
            ("ledger", "x = 0"),
            ("ledger", '"""M."""\ndef f(): ...'),
            ("ledger", '"""M."""\nclass C: ...'),
            ("ledger", '"""M."""\nclass C:\n    """C."""\n    def f(self): ...'),
        ),
        (("ledger", '"""M."""\ndef _f(): ...\ndef f():\n    """F."""\n    def inner(): ...'),),
    ),
    Rule(
        rules.optional_sources,
        (
            ("facts", "@dataclass(frozen=True)\nclass Row:\n    source: Source | None"),
            ("facts", "@dataclass(frozen=True)\nclass Row:\n    source: Source = NOBODY"),
            ("facts", "@dataclass(frozen=True)\nclass Row:\n    source: str"),
        ),
        (
            ("facts", "@dataclass(frozen=True)\nclass Row:\n    name: str\n    source: Source"),
            ("facts", "@dataclass(frozen=True)\nclass Row:\n    sources: tuple[Source, ...]"),
            ("ledger", "@dataclass(frozen=True)\nclass Row:\n    source: str"),
        ),
    ),
    Rule(
        rules.sources_elsewhere,
        (("ledger", "X = Source('PyTorch', 'a file', '2.0')"), ("show", "def f():\n    return Source('a', where='b')")),
        (("facts", "X = Source('PyTorch', 'a file')"), ("evidence", "x = Source('traced operation', op, versions)")),
    ),
)
BY_NAME = [pytest.param(rule, id=rule.check.__name__) for rule in RULES]
BROKEN = [(rule, *sample) for rule in RULES for sample in rule.broken]
KEPT = [(rule, *sample) for rule in RULES for sample in rule.kept]


@pytest.mark.parametrize("rule", BY_NAME)
def test_the_source_keeps_the_rule(rule: Rule) -> None:
    offences = [str(offence) for file in rules.sources() for offence in rule.check(file)]
    assert not offences, "\n" + "\n".join(offences)


@pytest.mark.parametrize(("rule", "layer", "text"), BROKEN)
def test_the_rule_refuses_code_that_breaks_it(rule: Rule, layer: str, text: str) -> None:
    assert list(rule.check(parse(text, layer))), text


@pytest.mark.parametrize(("rule", "layer", "text"), KEPT)
def test_the_rule_accepts_code_that_keeps_it(rule: Rule, layer: str, text: str) -> None:
    assert [str(offence) for offence in rule.check(parse(text, layer))] == []


def test_every_layer_is_read() -> None:
    read = {file.layer for file in rules.sources()}
    assert {path.name for path in rules.PACKAGE.iterdir() if (path / "__init__.py").exists()} <= read
