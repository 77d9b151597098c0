"""A typer command that passes on its arguments as they are typed.

typer uses pydantic to convert every value. Importing pydantic takes about 60 ms of CPU, more than all other work of
reading arguments. A command with arguments that are text and flags only needs no conversion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer.core

if TYPE_CHECKING:
    from typer._click import Context


class TextCommand(typer.core.TyperCommand):
    """A command with parameters that are text, lists of text and flags. The command itself validates them.

    Parameters that are not given have their defaults.
    """

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Set the context's parameters from the typed arguments. --help prints the help and exits."""
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
