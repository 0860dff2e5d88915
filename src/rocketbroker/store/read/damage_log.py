"""Remembers which damaged messages were met, so that each is told once however often it is asked for."""

import logging
import threading

log = logging.getLogger(__name__)

# So many messages are told apart; the rest is counted.
_MOST_TOLD = 1000


class DamageLog:
    """Logs and counts messages that are not given out; for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._told: set[tuple[str, int]] = set()
        # Damaged messages met since the start. Beyond those that are told apart one counts each time it is asked for.
        self.count = 0

    def report(self, path: str, position: int, what: str) -> None:
        """Tell that a message is not given out, unless that was told before.

        Args:
            path: the file with the message's entry or record.
            position: where in it.
            what: what is wrong, and with which message.
        """
        with self._lock:
            if (path, position) in self._told:
                return
            self.count += 1
            last = len(self._told) == _MOST_TOLD - 1
            if len(self._told) == _MOST_TOLD:
                return
            self._told.add((path, position))
        log.error("%s is damaged at %d: %s. Stop the broker and run `mqstore check` on its store", path, position, what)
        if last:
            log.error("%d damaged messages were met; further ones are counted and not logged", _MOST_TOLD)
