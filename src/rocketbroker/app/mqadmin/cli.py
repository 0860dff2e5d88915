"""The command ``mqadmin`` (org.apache.rocketmq.tools.command.MQAdminStartup).

mqadmin [--cluster NAME] SUB_COMMAND [OPTION]...

exit code 0: success, 1: failure (reason on stderr), 2: wrong usage, 130: Ctrl-C, 141: nobody reads the output
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from rocketbroker.app.command_line import SubCommand, Version, lazy_app, run_app
from rocketbroker.app.mqadmin.index import SUMMARIES
from rocketbroker.app.mqadmin.named_clusters import CHOSEN, Chosen, complete_cluster
from rocketbroker.app.terminal import say

__all__ = ["SUB_COMMANDS", "app", "main"]

# Sub-commands by name: their modules and summaries. Nothing else of them is imported before they run.
SUB_COMMANDS: Final = {
    name: SubCommand(module, summary) for module, summaries in SUMMARIES.items() for name, summary in summaries.items()
}


def load(name: str) -> Callable[..., None]:
    """Import the module of a sub-command and return its function."""
    import_module(f"rocketbroker.app.mqadmin.{SUB_COMMANDS[name].module}")
    from rocketbroker.app.mqadmin import command

    return command.REGISTERED[name].function


def root(
    version: Version = False,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            autocompletion=complete_cluster,
            help="Use the name servers of this cluster of the file of clusters.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", metavar="FILE", help="File of named clusters; by default ~/.config/rocketbroker/mqadmin.toml."
        ),
    ] = None,
    tls: Annotated[
        bool, typer.Option("--tls", help="Use TLS, and trust the issuers of certificates that the system trusts.")
    ] = False,
    ca_file: Annotated[
        Path | None,
        typer.Option("--ca-file", metavar="FILE", help="Use TLS, and trust the issuers in this file in PEM alone."),
    ] = None,
) -> None:
    """Keep the options before the sub-command."""
    CHOSEN.set(Chosen(cluster, config, tls, ca_file))


app = lazy_app(
    SUB_COMMANDS,
    load,
    "Administer RocketMQ clusters, topics, groups and messages.",
    root,
    [(module.replace("_", " ").capitalize(), list(summaries)) for module, summaries in SUMMARIES.items()],
)


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
    run_app(app, "mqadmin")


if __name__ == "__main__":
    main()
