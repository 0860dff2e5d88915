"""The command ``mqstore``.

mqstore check DIR | dump WHAT DIR | repair DIR | truncate DIR OFFSET

Exit code 0: no errors found; 1: errors found; 2: no store, unreadable store, or wrong usage; 3: repair or
truncate ran without --yes and has something to do.
"""

from collections.abc import Callable
from typing import Final

from rocketbroker.app.command_line import SubCommand, lazy_app

#: Sub-commands in the order of the documentation.
COMMANDS: Final = {
    "check": SubCommand("check", "Check a store; exit with 1 if it has errors.", "check"),
    "repair": SubCommand("repair", "Repair a store as a broker does at its start.", "repair"),
    "truncate": SubCommand("repair", "Drop the end of a slave's log that its master does not have.", "truncate"),
}
DUMP_COMMANDS: Final = {
    "log": SubCommand("dump", "Show the records of the CommitLog.", "log"),
    "queue": SubCommand("dump", "Show the entries of a ConsumeQueue; without a topic, list the queues.", "queue"),
    "index": SubCommand("dump", "Show index files, or the entries of one key.", "index"),
    "checkpoint": SubCommand("dump", "Show the checkpoint and whether the store was stopped cleanly.", "checkpoint"),
    "config": SubCommand("dump", "Show the tables of config/ as standard JSON.", "config"),
}


def load(name: str) -> Callable[..., None]:
    """Import the function of a sub-command."""
    return COMMANDS[name].load(__package__)


def load_dump(name: str) -> Callable[..., None]:
    """Import the function of a sub-command of ``dump``."""
    return DUMP_COMMANDS[name].load(__package__)


app = lazy_app(COMMANDS, load, "Check, show and repair the files of a stopped RocketMQ store.")
app.add_typer(lazy_app(DUMP_COMMANDS, load_dump, "Show the contents of a store's files."), name="dump")


def main() -> None:
    """Entry point of the console script."""
    app(prog_name="mqstore")


if __name__ == "__main__":
    main()
