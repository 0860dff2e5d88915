"""The command ``mqstore``.

mqstore check DIR | dump WHAT DIR | repair DIR | truncate DIR OFFSET

Exit code 0: no errors found; 1: errors found; 2: no store, unreadable store, or wrong usage; 3: repair or
truncate ran without --yes and has something to do.
"""

from rocketbroker.app.command_line import lazy_app
from rocketbroker.app.mqstore.sub_commands import COMMANDS, DUMP_COMMANDS, load, load_dump

app = lazy_app(COMMANDS, load, "Check, show and repair the files of a stopped RocketMQ store.")
app.add_typer(lazy_app(DUMP_COMMANDS, load_dump, "Show the contents of a store's files."), name="dump")


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqstore")


if __name__ == "__main__":
    main()
