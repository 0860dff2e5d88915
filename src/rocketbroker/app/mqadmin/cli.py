"""The command ``mqadmin`` (org.apache.rocketmq.tools.command.MQAdminStartup).

mqadmin SUB_COMMAND [OPTION]...      exit code 0: done, 1: failed, the reason is on stderr, 2: wrong usage
"""

import typer

from rocketbroker.app.lazy_commands import lazy_app
from rocketbroker.app.mqadmin.sub_commands import SUB_COMMANDS, load

app = lazy_app(SUB_COMMANDS, load, "Look after RocketMQ clusters, topics, groups and messages.")


@app.callback()
def mqadmin() -> None:
    """Look after RocketMQ clusters, topics, groups and messages."""


@app.command("help")
def show_help(
    ctx: typer.Context, sub_command: str = typer.Argument("", metavar="[SUB_COMMAND]", help="Which one.")
) -> None:
    """Show the options of a sub-command."""
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
