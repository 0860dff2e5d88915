"""The command ``mqadmin`` (org.apache.rocketmq.tools.command.MQAdminStartup).

mqadmin SUB_COMMAND [OPTION]...      exit code 0: done, 1: failed, the reason is on stderr, 2: wrong usage
"""

from typing import Any

import typer
from typer.core import TyperGroup
from typer.main import get_command

from rocketbroker.app.mqadmin.sub_commands import SUB_COMMANDS, load

_CONTEXT = {"help_option_names": ["-h", "--help"]}


class SubCommandGroup(TyperGroup):
    """Loads the file of a sub-command when it is called or its help is asked for."""

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]
        """The names, in the order of the documentation."""
        return [*SUB_COMMANDS, "help"]

    def get_command(self, ctx: typer.Context, cmd_name: str) -> Any:  # type: ignore[override]
        """The command of that name, None when there is none."""
        if cmd_name in SUB_COMMANDS:
            return build_command(cmd_name)
        return super().get_command(ctx, cmd_name)


def build_command(name: str) -> Any:
    """A sub-command with its options, as typer runs it."""
    sub_app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    sub_app.command(name, help=SUB_COMMANDS[name].summary, context_settings=_CONTEXT)(load(name))
    command = get_command(sub_app)
    command.name = name
    return command


app = typer.Typer(
    cls=SubCommandGroup,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # rich would cost a tenth of a second at each start
    context_settings=_CONTEXT,
    help="Look after RocketMQ clusters, topics, groups and messages.",
)


@app.callback()
def mqadmin() -> None:
    """Look after RocketMQ clusters, topics, groups and messages."""


@app.command("help")
def show_help(
    ctx: typer.Context, sub_command: str = typer.Argument("", metavar="[SUB_COMMAND]", help="Which one.")
) -> None:
    """Show the options of a sub-command, as RocketMQ's ``mqadmin help`` does."""
    parent = ctx.parent
    assert parent is not None
    if not sub_command:
        print(parent.get_help())
        return
    command = parent.command.get_command(parent, sub_command)  # type: ignore[attr-defined]
    if command is None:
        raise typer.BadParameter(f"there is no sub-command {sub_command!r}; see mqadmin help")
    with type(parent)(command, info_name=sub_command, parent=parent) as child:
        print(command.get_help(child))


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqadmin")


if __name__ == "__main__":
    main()
