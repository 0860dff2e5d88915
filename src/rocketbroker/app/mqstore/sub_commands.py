"""The sub-commands of ``mqstore``, in the order of the documentation."""

from collections.abc import Callable
from typing import Final

from rocketbroker.app.mqstore import check

COMMANDS: Final[dict[str, Callable[..., None]]] = {"check": check.command}
DUMP_COMMANDS: Final[dict[str, Callable[..., None]]] = {}
