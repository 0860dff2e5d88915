"""Logging of the commands: one line for each record, on stderr."""

import logging
import os
import sys

from rocketbroker.app.log_lines import FloodFilter, LineFormatter
from rocketbroker.common.errors import ConfigError

LEVEL_VARIABLE = "ROCKETBROKER_LOG_LEVEL"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_FORMAT = "%(asctime)s %(levelname)-7s %(name)s - %(message)s"


def set_up_logging(level: str | None = None) -> None:
    """Log to stderr from ``level`` on; the default is the variable ROCKETBROKER_LOG_LEVEL, else INFO.

    Raises:
        ConfigError: The level is unknown.
    """
    name = (level or os.environ.get(LEVEL_VARIABLE) or "INFO").strip().upper()
    if name not in _LEVELS:
        raise ConfigError(f"unknown log level {name!r} (option or {LEVEL_VARIABLE}); use one of {', '.join(_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(_FORMAT))
    handler.addFilter(FloodFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(name)
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[name]))
