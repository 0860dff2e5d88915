"""Options and behaviour that all commands share: ``-h``, ``--version``, shell completion, one-line errors, and
sub-commands whose modules are imported when they run.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Annotated, Any, Final, NamedTuple

import typer
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from rocketbroker import __version__

INSTALL_ANALYTICS: Final = "pip install 'rocketbroker[analytics]'"
CONTEXT: Final = {"help_option_names": ["-h", "--help"]}


def new_app(**options: Any) -> typer.Typer:
    """Return a typer command with the shared behaviour; ``options`` are typer's own."""
    return typer.Typer(
        rich_markup_mode=None,  # importing rich would add 0.1 s to each start
        pretty_exceptions_enable=False,
        context_settings=CONTEXT,
        **options,
    )


def _print_version(ctx: typer.Context, value: bool) -> None:
    if value:
        print(f"{ctx.find_root().info_name} {__version__}")
        raise typer.Exit


Version = Annotated[
    bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit.")
]


class SubCommand(NamedTuple):
    """A sub-command: its module in the command's package, its one-line summary and its function."""

    module: str
    summary: str
    function: str = "command"

    def load(self, package: str | None) -> Callable[..., None]:
        """Import the function."""
        found: Callable[..., None] = getattr(import_module(f"{package}.{self.module}"), self.function)
        return found


def _only_version(version: Version = False) -> None:
    pass


def lazy_app(
    commands: Mapping[str, SubCommand],
    load: Callable[[str], Callable[..., None]],
    summary: str,
    root: Callable[..., None] = _only_version,
) -> typer.Typer:
    """Return a command with ``commands`` in this order, followed by those added later.

    Args:
        commands: the sub-commands by name.
        load: imports a sub-command and returns its function.
        summary: first line of the help.
        root: has the options that stand before the name of a sub-command as its parameters.
    """

    class LazyGroup(TyperGroup):
        def __init__(self, **attributes: Any) -> None:
            super().__init__(**attributes)
            # Help, suggestions and completion need names and summaries only.
            self.commands = {name: TyperCommand(name, help=each.summary) for name, each in commands.items()} | dict(
                self.commands
            )

        def resolve_command(self, ctx: Any, args: list[str]) -> Any:
            name, command, rest = super().resolve_command(ctx, args)
            if name is not None and name in commands:
                command = _built(name, load(name))
            return name, command, rest

    app = new_app(cls=LazyGroup, no_args_is_help=True, help=summary)

    app.callback(help=summary)(root)
    return app


def _built(name: str, function: Callable[..., None]) -> Any:
    """Build a sub-command with its options, as typer runs it."""
    sub_app = new_app(add_completion=False)
    sub_app.command(name, context_settings=CONTEXT)(function)
    command = get_command(sub_app)
    command.name = name
    return command
