"""Logs of events whose number strangers determine: a line in a while, and a count of those left out."""

import logging
import time
from collections.abc import Hashable
from typing import Final

_PERIOD_S = 10.0
_MOST_EVENTS: Final = 20


class RefusalLog:
    """Log of rejected requests or peers, at most one line of a kind in 10 s, and ``_MOST_EVENTS`` of all kinds.

    Args:
        logger: takes the lines.
        counted: what the number in a line counts.
    """

    def __init__(self, logger: logging.Logger, counted: str = "rejected") -> None:
        self._logger = logger
        self._counted = counted
        self._count = 0
        self._began = float("-inf")
        # Kinds that have a line in these 10 s.
        self._kinds: set[Hashable] = set()

    def add(self, text: str, kind: Hashable = None) -> None:
        """Count a rejection; log it unless one of its kind was logged within 10 s. By default all are of one kind."""
        self._count += 1
        now = time.monotonic()
        if now >= self._began + _PERIOD_S:
            self._began = now
            self._kinds.clear()
        if kind not in self._kinds and len(self._kinds) < _MOST_EVENTS:
            self._kinds.add(kind)
            self._logger.warning("%s; %s since the last such line: %d", text, self._counted, self._count)
            self._count = 0


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
