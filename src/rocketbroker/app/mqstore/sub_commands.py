"""The sub-commands of ``mqstore``, in the order of the documentation."""

from collections.abc import Callable
from typing import Final

from rocketbroker.app.mqstore import check, dump_config, dump_index, dump_log, dump_queue, repair

COMMANDS: Final[dict[str, Callable[..., None]]] = {"check": check.command, "repair": repair.command}
DUMP_COMMANDS: Final[dict[str, Callable[..., None]]] = {
    "log": dump_log.command,
    "queue": dump_queue.command,
    "index": dump_index.command,
    "checkpoint": dump_config.checkpoint,
    "config": dump_config.config,
}
