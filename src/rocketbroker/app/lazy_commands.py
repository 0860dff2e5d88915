"""A command whose sub-commands each have a file, imported when it is called or its help is asked for."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import typer
from typer.core import TyperGroup
from typer.main import get_command

_CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


class SubCommand(NamedTuple):
    """Its file in its command's package, and what it does in one line."""

    module: str
    summary: str


def lazy_app(
    commands: Mapping[str, SubCommand], load: Callable[[str], Callable[..., None]], summary: str
) -> typer.Typer:
    """The command that has ``commands``, in this order, and those that are added to it.

    Args:
        commands: the sub-commands by name.
        load: gives the function of one of them.
        summary: what the command does.
    """

    class LazyGroup(TyperGroup):
        def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
            return [*commands, *super().list_commands(ctx)]

        def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
            if cmd_name in commands:
                return _built(cmd_name, commands[cmd_name].summary, load(cmd_name))
            return super().get_command(ctx, cmd_name)

    return typer.Typer(
        cls=LazyGroup,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,  # rich would cost a tenth of a second at each start
        context_settings=_CONTEXT,
        help=summary,
    )


def _built(name: str, summary: str, function: Callable[..., None]) -> Any:
    """A sub-command with its options, as typer runs it."""
    sub_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    sub_app.command(name, help=summary, context_settings=_CONTEXT)(function)
    command = get_command(sub_app)
    command.name = name
    return command
