"""Logging of the commands on stderr: one line for each record, which text from a peer can neither forge nor flood."""

import logging
import os
import sys
import time
from types import TracebackType

from rocketbroker.common.errors import ConfigError

_MOST_CHARACTERS = 4096
_MOST_TRACE_CHARACTERS = 16 * 1024
# Lines of one place in the code within _PERIOD_S.
_MOST_LINES = 1000
_PERIOD_S = 10.0

_ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None]


def truncated(text: str) -> str:
    """Return a text of a reasonable length."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}... ({len(text)} characters)"


def one_line(text: str) -> str:
    """Escape characters that would break a line, and truncate a very long one."""
    text = truncated(text)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


class LineFormatter(logging.Formatter):
    """Format a record as one line and indent its traceback, so that no line of it looks like a record."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - logging's name
        """Called by logging."""
        record.message = one_line(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: _ExcInfo) -> str:  # noqa: N802 - logging's name
        """Called by logging."""
        text = super().formatException(ei)
        if len(text) > _MOST_TRACE_CHARACTERS:
            half = _MOST_TRACE_CHARACTERS // 2
            text = f"{text[:half]}\n... ({len(text)} characters)\n{text[-half:]}"
        # Split at line feeds only: splitlines splits at characters that a terminal may not treat as line ends.
        return "\n".join(f"  {one_line(line)}" for line in text.split("\n"))


class FloodFilter(logging.Filter):
    """Drop lines of one place in the code beyond a rate, and log how many were dropped."""

    def __init__(self) -> None:
        super().__init__()
        # Start of the period and number of lines in it, by file and line of the code.
        self._seen: dict[tuple[str, int], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Called by logging."""
        place, now = (record.pathname, record.lineno), time.monotonic()
        began, count = self._seen.get(place, (now, 0))
        left_out = count - _MOST_LINES
        if now >= began + _PERIOD_S:
            began, count = now, 0
            if left_out > 0:
                _append(record, f"{left_out} lines like this were dropped")
        count += 1
        self._seen[place] = began, count
        if count == _MOST_LINES:
            _append(record, f"more lines like this are dropped for {began + _PERIOD_S - now:.0f} s")
        return count <= _MOST_LINES


def _append(record: logging.LogRecord, text: str) -> None:
    try:
        message = one_line(record.getMessage())
    except Exception:  # noqa: BLE001 - the handler reports it when it formats the record
        return
    record.msg, record.args = f"{message} ({text})", ()


LEVEL_VARIABLE = "ROCKETBROKER_LOG_LEVEL"
FORMAT = "%(asctime)s %(levelname)-7s %(name)s - %(message)s"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


def set_up_logging(level: str | None = None) -> None:
    """Log to stderr from ``level`` on; the default is the variable ROCKETBROKER_LOG_LEVEL, else INFO.

    Raises:
        ConfigError: The level is unknown.
    """
    set_level(level)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(FORMAT))
    handler.addFilter(FloodFilter())
    logging.getLogger().handlers[:] = [handler]


def set_level(level: str | None = None) -> None:
    """Log from ``level`` on from now; the default is that of ``set_up_logging``.

    Raises:
        ConfigError: The level is unknown.
    """
    name = (level or os.environ.get(LEVEL_VARIABLE) or "INFO").strip().upper()
    name = "WARNING" if name == "WARN" else name
    if name not in _LEVELS:
        raise ConfigError(f"unknown log level {name!r} (option or {LEVEL_VARIABLE}); use one of {', '.join(_LEVELS)}")
    logging.getLogger().setLevel(name)
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[name]))
