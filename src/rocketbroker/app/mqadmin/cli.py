"""The command ``mqadmin`` (org.apache.rocketmq.tools.command.MQAdminStartup).

mqadmin SUB_COMMAND [OPTION]...      exit code 0: success, 1: failure (reason on stderr), 2: wrong usage
"""

from typing import Any

import typer

from rocketbroker.app.command_line import lazy_app
from rocketbroker.app.mqadmin.sub_commands import SUB_COMMANDS, load
from rocketbroker.app.terminal import say

app = lazy_app(SUB_COMMANDS, load, "Administer RocketMQ clusters, topics, groups and messages.")


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
