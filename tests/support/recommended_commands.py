"""Commands in the text that ``mqadmin why`` and ``mqadmin doctor`` recommend: each must be one that mqadmin takes."""

import re
import shlex
from collections.abc import Iterable
from typing import Any

from typer.main import get_command

from rocketbroker.app.mqadmin.cli import app

_COMMAND = re.compile(r"mqadmin (.*?)(?=; | lists |$)")


def check_commands(texts: Iterable[str]) -> set[str]:
    """Return the sub-commands that texts recommend.

    Raises:
        typer's usage error: a sub-command does not exist, or does not take its options.
    """
    found: set[str] = set()
    root: Any = get_command(app)
    for words in (shlex.split(match) for text in texts for match in _COMMAND.findall(text)):
        with root.make_context("mqadmin", list(words)) as parent:
            name, command, rest = parent.command.resolve_command(parent, [*parent._protected_args, *parent.args])
            with command.make_context(name, rest, parent=parent):
                found.add(name)
    return found
