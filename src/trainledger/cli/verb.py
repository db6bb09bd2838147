"""What every verb refuses of its own command line: a value that is empty would count as one that was left out."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

from trainledger.base.problems import InputError, Problem

GIVEN = "COMMANDLINE"  # the parser's word for where a value came from


class Verb(TyperCommand):
    """A command whose options and arguments are not empty where they are given."""

    def invoke(self, ctx: Any) -> Any:
        """Run the verb. Raises InputError for every empty value, as `--device "$UNSET"` gives one."""
        empty = [one for one in self.params if one.name and _empty(ctx, one.name)]
        if empty:
            raise InputError([_problem(one) for one in empty])
        return super().invoke(ctx)


def _empty(ctx: Any, name: str) -> bool:
    value, source = ctx.params.get(name), ctx.get_parameter_source(name)
    values = value if isinstance(value, list | tuple) else (value,)
    return "" in values and source is not None and source.name == GIVEN


def _problem(parameter: Any) -> Problem:
    option = max((one for one in parameter.opts if one.startswith("-")), key=len, default="")
    name = option or str(parameter.metavar or parameter.name)
    return Problem(
        name, "found an empty text", "a value is needed", "Leave it out where there is none." if option else ""
    )
