"""Logs of events whose number strangers determine: a line in a while, and a count of those left out."""

import logging
import time
from typing import Final

_PERIOD_S = 10.0
_MOST_EVENTS: Final = 20


class RefusalLog:
    """Log of rejected requests or peers, at most one line in 10 s.

    Args:
        logger: takes the lines.
        counted: what the number in a line counts.
    """

    def __init__(self, logger: logging.Logger, counted: str = "rejected") -> None:
        self._logger = logger
        self._counted = counted
        self._count = 0
        self._last_line = float("-inf")

    def add(self, text: str) -> None:
        """Count a rejection and log it if the last line is 10 s old."""
        self._count += 1
        now = time.monotonic()
        if now >= self._last_line + _PERIOD_S:
            self._logger.warning("%s; %s since the last such line: %d", text, self._counted, self._count)
            self._count, self._last_line = 0, now


class EventLog:
    """Log of what clients do, at most ``_MOST_EVENTS`` lines in 10 s; a line counts those that were left out before it.

    Args:
        logger: takes the lines.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        self._began = float("-inf")
        self._lines = 0
        self._left_out = 0

    def add(self, text: str, *args: object) -> None:
        """Log an event, unless there were too many lately; ``text`` is formatted with ``args`` as by a logger."""
        now = time.monotonic()
        if now >= self._began + _PERIOD_S:
            self._began, self._lines = now, 0
        if self._lines == _MOST_EVENTS:
            self._left_out += 1
            return
        self._lines += 1
        before = f"; lines left out before this one: {self._left_out}" if self._left_out else ""
        self._left_out = 0
        self._logger.info("%s%s", text % args if args else text, before)
