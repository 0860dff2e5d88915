"""Warnings of the client that ``mqadmin`` runs, on stderr."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from rocketbroker.app.terminal import say


class _Stderr(logging.Handler):
    """Print records as the errors of a sub-command are: with its name, and escaped."""

    def emit(self, record: logging.LogRecord) -> None:
        """Called by logging."""
        say("mqadmin:", self.format(record), err=True)


@contextmanager
def warnings_on_stderr() -> Iterator[None]:
    """Print the log from warnings on while this context is open; a process without a handler prints bare texts."""
    root, handler = logging.getLogger(), _Stderr(logging.WARNING)
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
