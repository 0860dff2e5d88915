"""Where log lines of the commands go: to stderr, one line each, through the standard library."""

import logging
import os
import sys

from rocketbroker.app.log_lines import FloodFilter, LineFormatter
from rocketbroker.common.errors import ConfigError

LEVEL_VARIABLE = "ROCKETBROKER_LOG_LEVEL"
_LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
_FORMAT = "%(asctime)s %(levelname)-7s %(name)s - %(message)s"


def set_up_logging(level: str | None = None) -> None:
    """Log to stderr from ``level`` on; without one the variable ROCKETBROKER_LOG_LEVEL says it, else it is INFO.

    Raises:
        ConfigError: no such level.
    """
    name = (level or os.environ.get(LEVEL_VARIABLE) or "INFO").strip().upper()
    if name not in _LEVELS:
        raise ConfigError(f"no log level {name!r} (option or {LEVEL_VARIABLE}); right is one of {', '.join(_LEVELS)}")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(_FORMAT))
    handler.addFilter(FloodFilter())
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(name)
    logging.getLogger("asyncio").setLevel(max(logging.WARNING, logging.getLevelNamesMapping()[name]))
