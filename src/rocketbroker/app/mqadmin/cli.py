"""The command ``mqadmin`` (org.apache.rocketmq.tools.command.MQAdminStartup).

mqadmin SUB_COMMAND [OPTION]...      exit code 0: success, 1: failure (reason on stderr), 2: wrong usage
"""

from typing import Any

import typer

from rocketbroker.app.command_line import CONTEXT, Version, new_app

# The modules register their sub-commands, in the order of the help.
from rocketbroker.app.mqadmin import clusters, topics, groups, offsets, messages, brokers, bench  # isort: skip  # noqa: F401
from rocketbroker.app.mqadmin.command import SUB_COMMANDS
from rocketbroker.app.terminal import say

__all__ = ["SUB_COMMANDS", "app", "main"]

app = new_app(no_args_is_help=True, help="Administer RocketMQ clusters, topics, groups and messages.")


@app.callback(help="Administer RocketMQ clusters, topics, groups and messages.")
def root(version: Version = False) -> None:
    """Take the options before the sub-command."""


for _name, _command in SUB_COMMANDS.items():
    app.command(_name, short_help=_command.summary, context_settings=CONTEXT)(_command.function)


@app.command("help")
def show_help(
    ctx: typer.Context,
    sub_command: str = typer.Argument(
        "", metavar="[SUB_COMMAND]", help="Sub-command to explain; without it, list all."
    ),
) -> None:
    """Show the options of a sub-command."""
    parent: Any = ctx.parent
    if not sub_command:
        say(parent.get_help())
        return
    name, command, _ = parent.command.resolve_command(parent, [sub_command])
    with type(parent)(command, info_name=name, parent=parent) as child:
        say(command.get_help(child))


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqadmin")


if __name__ == "__main__":
    main()
