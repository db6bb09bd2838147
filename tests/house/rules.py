"""Checkers of the rules of the house. Each takes a file (or files) and gives the offences it finds, none if clean."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "src" / "trainledger"

MIDDLE = ("base", "facts", "plan", "model", "lines", "allocator", "ledger", "answer")
SOURCED = ("base", "facts")
OUTSIDE = ("show", "web", "cli", "api")

FILE_LINES = 300
FUNCTION_LINES = 40
PARAMETERS = 6
FIELDS = 13

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class File:
    """One source file: `layer` is its folder under the package (empty at the root), `tree` its parsed text, `nodes` all
    of that."""

    name: str
    layer: str
    text: str
    tree: ast.Module
    nodes: tuple[ast.AST, ...]


@dataclass(frozen=True, slots=True)
class Offence:
    """A rule broken at a place."""

    place: str
    what: str

    def __str__(self) -> str:
        return f"{self.place}: {self.what}"


Checker = Callable[[File], Iterable[Offence]]


def parse(text: str, layer: str = "", name: str = "sample.py") -> File:
    """A file from its text."""
    tree = ast.parse(text)
    return File(f"{layer}/{name}" if layer else name, layer, text, tree, tuple(ast.walk(tree)))


@cache
def sources() -> tuple[File, ...]:
    """Every source file of the package, parsed once for all rules."""
    files = []
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        layer = parts[0] if len(parts) > 1 else ""
        name = "/".join(parts[1:] if layer else parts)
        files.append(parse(path.read_text(encoding="utf-8"), layer, name))
    return tuple(files)


def at(file: File, node: ast.AST, what: str) -> Offence:
    """An offence at a node's line."""
    return Offence(f"{file.name}:{getattr(node, 'lineno', 0)}", what)


# Numbers -----------------------------------------------------------------------------------------------------------

_SCALING = (ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.LShift, ast.RShift)
_TEXT_CALLS = {"str", "repr", "list", "tuple", "sorted", "join", "format", "ljust", "rjust", "center", "strip"}
_TEXT_CALLS |= {"replace", "lower", "upper", "title", "capitalize", "removeprefix", "removesuffix", "dedent", "indent"}


def _number(node: ast.expr) -> int | float | complex | None:
    """The value of a numeric literal, its sign included; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        value = _number(node.operand)
        return -value if value is not None and isinstance(node.op, ast.USub) else value
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float | complex):
        return None if isinstance(node.value, bool) else node.value
    return None


def _called(node: ast.expr) -> str:
    """The last name of what a call calls: `join` of `", ".join(...)`."""
    if isinstance(node, ast.Call):
        return _called(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _sequence(node: ast.expr) -> bool:
    """Whether an expression is, by its look alone, a string, list or tuple."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | bytes)
    if isinstance(node, ast.JoinedStr | ast.List | ast.Tuple | ast.ListComp):
        return True
    if isinstance(node, ast.BinOp):
        return _sequence(node.left) or _sequence(node.right)
    if isinstance(node, ast.IfExp):
        return _sequence(node.body) and _sequence(node.orelse)
    return isinstance(node, ast.Call) and (_called(node) in _TEXT_CALLS or _called(node).startswith("format_"))


def _operations(file: File) -> Iterator[tuple[ast.AST, ast.operator, list[ast.expr]]]:
    """Every binary operation, in place or not: node, operator, operands."""
    for node in file.nodes:
        if isinstance(node, ast.BinOp):
            yield node, node.op, [node.left, node.right]
        elif isinstance(node, ast.AugAssign):
            yield node, node.op, [node.target, node.value]


def scaling_literals(file: File) -> Iterator[Offence]:
    """Numeric literals other than 0, 1, -1 as an operand of * / // % ** << >> outside facts and base."""
    if file.layer in SOURCED:
        return
    for node, operator, operands in _operations(file):
        if not isinstance(operator, _SCALING) or any(_sequence(operand) for operand in operands):
            continue
        for value in map(_number, operands):
            if value is not None and value not in (0, 1, -1):
                yield at(file, node, f"{value} is an operand; a number from the world is a row in facts/")


def module_constants(file: File) -> Iterator[Offence]:
    """Numeric literals other than 0, 1, -1 in what a module assigns at its top level outside facts and base.

    Those within tables, calls and conditions count; those within a lambda or a comprehension's filter do as well.
    """
    if file.layer in SOURCED:
        return
    for statement in _top_level(file.tree.body):
        value = getattr(statement, "value", None)
        if not isinstance(statement, ast.Assign | ast.AnnAssign | ast.AugAssign) or value is None:
            continue
        for node in ast.walk(value):
            number = _number(node) if isinstance(node, ast.Constant) else None
            if number is not None and number not in (0, 1):
                yield at(file, node, f"{number} in a module constant; a number from the world is a row in facts/")


def _top_level(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """A module's statements, those inside its own if, try, for and with included, functions and classes not."""
    for statement in body:
        yield statement
        if not isinstance(statement, Function | ast.ClassDef):
            yield from _top_level(node for node in ast.iter_child_nodes(statement) if isinstance(node, ast.stmt))


_SUMS = {"sum", "fsum", "prod", "divmod", "pow", "sumprod", "accumulate", "reduce"}
_ARITHMETIC = (ast.Add, ast.Sub, ast.MatMult, *_SCALING)


def outside_arithmetic(file: File) -> Iterator[Offence]:
    """Arithmetic in show, web, cli and api, where sizes are only printed.

    No reader of the syntax can tell a size from another number, so the rule covers all numbers: an arithmetic
    operator is allowed only where an operand is, by its look, text or a sequence, or where 1 is added or taken
    away (a position in a list). Sums and products by name are not allowed either.
    """
    if file.layer not in OUTSIDE:
        return
    for node, operator, operands in _operations(file):
        step = isinstance(operator, ast.Add | ast.Sub) and _number(operands[1]) == 1
        if isinstance(operator, _ARITHMETIC) and not step and not any(map(_sequence, operands)):
            yield at(file, node, f"{type(operator).__name__} outside; fold the lines in a layer below")
    for node in file.nodes:
        if isinstance(node, ast.Call) and _called(node) in _SUMS:
            yield at(file, node, f"{_called(node)}() outside; fold the lines in a layer below")
        if isinstance(node, ast.ImportFrom | ast.Import):
            names = {node.module} if isinstance(node, ast.ImportFrom) else {alias.name for alias in node.names}
            if names & {"operator", "math", "numpy"}:
                yield at(file, node, "imports arithmetic; fold the lines in a layer below")


# Sizes of files, functions, calls and classes ----------------------------------------------------------------------


def long_files(file: File) -> Iterator[Offence]:
    """Files of 300 lines or more."""
    count = len(file.text.splitlines())
    if count >= FILE_LINES:
        yield Offence(file.name, f"{count} lines; split it below {FILE_LINES}")


def _functions(file: File) -> Iterator[Function]:
    return (node for node in file.nodes if isinstance(node, Function))


def long_functions(file: File) -> Iterator[Offence]:
    """Functions of 40 lines or more, from `def` to the last line."""
    for function in _functions(file):
        count = (function.end_lineno or function.lineno) - function.lineno + 1
        if count >= FUNCTION_LINES:
            yield at(file, function, f"{function.name} has {count} lines; split it below {FUNCTION_LINES}")


def _is_command(file: File, function: Function) -> bool:
    """Whether a function is a command of the command line: its parameters are the options that users type."""
    hints = [argument.annotation for argument in function.args.args + function.args.kwonlyargs]
    parts = [*function.args.defaults, *function.args.kw_defaults, *hints]
    text = " ".join(ast.unparse(part) for part in parts if part is not None)
    return file.layer == "cli" and re.search(r"\b(Option|Argument)\(", text) is not None


def wide_functions(file: File) -> Iterator[Offence]:
    """Functions of 6 parameters or more, `self` and `cls` aside, so that no call needs that many arguments.

    Commands of the command line are exempt. Constructing a dataclass is bounded by its number of fields instead.
    """
    for function in _functions(file):
        arguments = function.args
        names = [argument.arg for argument in arguments.posonlyargs + arguments.args]
        names = names[1:] if names[:1] in (["self"], ["cls"]) else names
        names += [argument.arg for argument in arguments.kwonlyargs]
        names += [extra.arg for extra in (arguments.vararg, arguments.kwarg) if extra is not None]
        if len(names) >= PARAMETERS and not _is_command(file, function):
            yield at(file, function, f"{function.name} takes {len(names)} parameters; keep it below {PARAMETERS}")


def _decorator(node: ast.ClassDef, name: str) -> ast.expr | None:
    return next((decorator for decorator in node.decorator_list if _called(decorator) == name), None)


def _classes(file: File) -> Iterator[ast.ClassDef]:
    return (node for node in file.nodes if isinstance(node, ast.ClassDef))


def fields_of(node: ast.ClassDef) -> list[ast.AnnAssign]:
    """The fields that a dataclass declares, class variables aside."""
    annotated = [line for line in node.body if isinstance(line, ast.AnnAssign)]
    return [line for line in annotated if "ClassVar" not in ast.unparse(line.annotation)]


def wide_dataclasses(file: File) -> Iterator[Offence]:
    """Dataclasses of 13 fields or more. The pydantic mirror of the plan file is none, so it is exempt."""
    for node in _classes(file):
        count = len(fields_of(node))
        if _decorator(node, "dataclass") is not None and count >= FIELDS:
            yield at(file, node, f"{node.name} has {count} fields; keep it below {FIELDS}")


def mutable_dataclasses(file: File) -> Iterator[Offence]:
    """Dataclasses of the middle that are not `frozen=True, slots=True`."""
    if file.layer not in (*MIDDLE, "evidence"):
        return
    for node in _classes(file):
        decorator = _decorator(node, "dataclass")
        if decorator is None:
            continue
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        on = {word.arg for word in keywords if isinstance(word.value, ast.Constant) and word.value.value is True}
        if not {"frozen", "slots"} <= on:
            yield at(file, node, f"{node.name} is not frozen with slots")


# Purity and imports ------------------------------------------------------------------------------------------------

_IMPURE = set(
    "os sys io time datetime random secrets uuid subprocess socket ssl pathlib shutil tempfile glob fileinput platform "
    "urllib http requests httpx logging threading multiprocessing asyncio concurrent ctypes signal getpass locale "
    "pkgutil inspect gc resource psutil pickle shelve sqlite3 atexit warnings typer rich yaml".split()
)
_EFFECTS = {"open", "print", "input", "exec", "eval", "compile", "__import__", "breakpoint", "globals", "exit", "quit"}
LIVE = "evidence/trace/live/"
_HEAVY = {"torch", "transformers", "huggingface_hub", "peft", "accelerate", "deepspeed"}


def _imports(file: File) -> Iterator[tuple[ast.stmt, str]]:
    """Every import and the first name of the module that it imports."""
    for node in file.nodes:
        if isinstance(node, ast.Import):
            yield from ((node, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node, node.module.partition(".")[0]


def effects(file: File) -> Iterator[Offence]:
    """Files, clocks, environments and devices in the middle: imports that reach them, and calls that do."""
    if file.layer not in MIDDLE:
        return
    for statement, name in _imports(file):
        if name in _IMPURE | _HEAVY or re.search(
            r"importlib(?!\.import_module| import import_module$)", ast.unparse(statement)
        ):
            yield at(file, statement, f"imports {name}; what is read outside comes in as an argument")
    for node in file.nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _EFFECTS:
            yield at(file, node, f"calls {node.func.id}(); the middle is pure")
        if isinstance(node, ast.Global):
            yield at(file, node, "rebinds a name of the module; the middle is pure")


def heavy_imports(file: File) -> Iterator[Offence]:
    """Extras imported when a module is imported: they may be missing, and they take seconds.

    The modules that run traced code need torch whole; so nothing else may import them at its top.
    """
    if LIVE in file.name:
        return
    inside = {id(node) for function in _functions(file) for node in ast.walk(function)}
    for statement, name in _imports(file):
        live = LIVE.rstrip("/").replace("/", ".") in ast.unparse(statement)
        if (name in _HEAVY or live) and id(statement) not in inside:
            yield at(file, statement, f"imports {name} at its top; import it in the function that needs it")


# Documentation -----------------------------------------------------------------------------------------------------


def undocumented(file: File) -> Iterator[Offence]:
    """Public modules, classes, functions and methods without a docstring."""
    if not ast.get_docstring(file.tree):
        yield Offence(file.name, "the module has no docstring")
    yield from _undocumented(file, file.tree.body)


def _undocumented(file: File, body: Iterable[ast.stmt]) -> Iterator[Offence]:
    for node in body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_"):
            continue
        overload = isinstance(node, Function) and any(_called(mark) == "overload" for mark in node.decorator_list)
        if not ast.get_docstring(node) and not overload:
            yield at(file, node, f"{node.name} has no docstring")
        if isinstance(node, ast.ClassDef):
            yield from _undocumented(file, node.body)


def optional_sources(file: File) -> Iterator[Offence]:
    """Row classes of facts whose source is not a required one: an optional type, or a default."""
    if file.layer != "facts":
        return
    for node in _classes(file):
        if _decorator(node, "dataclass") is None:
            continue
        for field in fields_of(node):
            kind = ast.unparse(field.annotation)
            required = field.value is None and re.fullmatch(r"Source|tuple\[Source, \.\.\.\]", kind)
            if ast.unparse(field.target) in ("source", "sources") and not required:
                yield at(file, field, f"{node.name}'s source is not a required Source")


def sources_elsewhere(file: File) -> Iterator[Offence]:
    """Sources that are written out outside facts and base: docs/sources.md would lack them."""
    if file.layer in SOURCED:
        return
    for node in file.nodes:
        if isinstance(node, ast.Call) and _called(node) == "Source":
            given = [*node.args, *(word.value for word in node.keywords)]
            if all(isinstance(one, ast.Constant) for one in given):
                yield at(file, node, "a source of the world is a row of facts")


# The repository ----------------------------------------------------------------------------------------------------

_FOREIGN = (
    r"(?<![\w.~})$-])/(?:work|root|tmp|opt/\w+|home/\w+)(?=/|\b)",  # paths of one machine
    r"\.\./shared\b",
    r"\b(?:DESIGN|FORMULAS|FIELD|CONFIGS|TRACE)\.md\b",  # papers that are not in the repository
    r"(?i)\bissue #?\d{1,2}\b",
    r"(?i)\b(?:this|previous|later|earlier|next|other) (?:session|issue)s?\b",
    r"(?i)\b(?:language model|AI|coding) (?:assistant|agent)\b",
)
_TEXT_SUFFIXES = {".py", ".md", ".toml", ".yaml", ".yml", ".json", ".jsonl", ".txt", ".cfg", ".html", ".css", ".js", ""}
_SKIPPED = re.compile(r"(?:^|/)(?:\.git|\.?venv|__pycache__|\.\w+_cache|\.hypothesis|\.benchmarks|dist|build)(?:/|$)")


def repository_files(root: Path = ROOT) -> Iterator[Path]:
    """Every text file of the repository, build outputs aside."""
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.suffix in _TEXT_SUFFIXES and not _SKIPPED.search(str(path.relative_to(root))):
            yield path


def foreign_words(name: str, text: str) -> Iterator[Offence]:
    """What a reader of the repository alone could not know: one machine's paths, papers and talk from elsewhere."""
    for number, line in enumerate(text.splitlines(), 1):
        for pattern in _FOREIGN:
            if match := re.search(pattern, line):
                yield Offence(f"{name}:{number}", f"says {match[0]!r}")


def unmirrored_tests(tests: Path, package: Path) -> Iterator[Offence]:
    """Test files of a layer that name no source file: `facts/test_devices_more.py` stands for `facts/devices.py`."""
    for path in sorted(tests.glob("*/**/test_*.py")):
        folder = package / path.parent.relative_to(tests)
        if not (package / path.relative_to(tests).parts[0]).is_dir():
            continue
        words = path.stem.removeprefix("test_").split("_")
        stems = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
        if not any((folder / f"{stem}.py").exists() or (folder / stem).is_dir() for stem in stems):
            yield Offence(str(path.relative_to(tests)), "mirrors no source file")
