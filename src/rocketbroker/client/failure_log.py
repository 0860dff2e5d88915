"""Log of failures that repeat while a server is away."""

import logging
import re
import time

# Seconds for which a failure is not logged again.
_QUIET_S = 60.0
# Causes that are remembered; older ones than a minute are forgotten beyond that.
_MOST_CAUSES = 256
_DURATION = re.compile(r"[\d.,]+ ?m?s\b")


class FailureLog:
    """Warnings of one part of a client: a line a minute for each cause, with the number of those left out.

    A cause is the text of the warning and of its error. Retries come every second or more often, for each queue, and
    would bury what else is logged.

    Args:
        log: the logger of the module.
    """

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        # Time of the last line, and the failures since.
        self._causes: dict[tuple[str, str], tuple[float, int]] = {}

    def warning(self, text: str, *values: object) -> None:
        """Log a failure unless the last minute has a line of its cause; the last of ``values`` is the error."""
        now = time.monotonic()
        cause = text, _DURATION.sub("", str(values[-1]))
        logged_at, left_out = self._causes.get(cause, (-_QUIET_S, 0))
        if now < logged_at + _QUIET_S:
            self._causes[cause] = logged_at, left_out + 1
            return
        if len(self._causes) >= _MOST_CAUSES:
            self._causes = {of: each for of, each in self._causes.items() if now < each[0] + _QUIET_S}
        self._causes[cause] = now, 0
        if left_out:
            text, values = f"{text} (and %d more since the last such line)", (*values, left_out)
        self._log.warning(text, *values)
