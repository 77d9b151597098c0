"""A typer command that takes its arguments as they are typed.

typer has pydantic convert every value, which costs more CPU to import than all else that reads arguments (about 60 ms).
Where text stays text and flags are flags there is nothing to convert.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer.core

if TYPE_CHECKING:
    from typer._click import Context


class TextCommand(typer.core.TyperCommand):
    """A command whose parameters are text, lists of text and flags; the command judges them itself.

    What was not given has its default.
    """

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Put what was typed into the context's parameters; --help prints and leaves."""
        parser = self.make_parser(ctx)
        values, rest, _ = parser.parse_args(args=args)
        for param in self.get_params(ctx):
            if not param.is_eager:
                value = values.get(param.name)
                ctx.params[param.name] = param.default if value is None else value
            elif param.name in values:
                param.handle_parse_result(ctx, values, rest)
        ctx.args = rest
        return rest
