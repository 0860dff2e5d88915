"""Sub-commands of ``mqstore``, in the order of the documentation."""

from collections.abc import Callable
from typing import Final

from rocketbroker.app.command_line import SubCommand

COMMANDS: Final = {
    "check": SubCommand("check", "Check a store; exit with 1 if it has errors."),
    "repair": SubCommand("repair", "Repair a store as a broker does at its start."),
    "truncate": SubCommand("truncate", "Drop the end of a slave's log that its master does not have."),
}
DUMP_COMMANDS: Final = {
    "log": SubCommand("dump_log", "Show the records of the CommitLog."),
    "queue": SubCommand("dump_queue", "Show the entries of a ConsumeQueue; without a topic, list the queues."),
    "index": SubCommand("dump_index", "Show index files, or the entries of one key."),
    "checkpoint": SubCommand(
        "dump_config", "Show the checkpoint and whether the store was stopped cleanly.", "checkpoint"
    ),
    "config": SubCommand("dump_config", "Show the tables of config/ as standard JSON.", "config"),
}


def load(name: str) -> Callable[..., None]:
    """Import the function of a sub-command."""
    return COMMANDS[name].load(__package__)


def load_dump(name: str) -> Callable[..., None]:
    """Import the function of a sub-command of ``dump``."""
    return DUMP_COMMANDS[name].load(__package__)
