"""Log of damaged messages, each of them once."""

import logging
import threading

log = logging.getLogger(__name__)

# Most cached damaged messages, each of which is logged once; further ones are only counted.
_MOST_LOGGED = 1000


class DamageLog:
    """Log and count of messages left out of reads; usable from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._logged: set[tuple[str, int]] = set()
        # Damaged messages found since the start; those that are not cached count at each read.
        self.count = 0

    def report(self, path: str, position: int, what: str) -> None:
        """Log that a message is left out, unless it was logged before.

        Args:
            path: file with the message's entry or record.
            position: position in the file.
            what: the message and its damage.
        """
        with self._lock:
            if (path, position) in self._logged:
                return
            self.count += 1
            last = len(self._logged) == _MOST_LOGGED - 1
            if len(self._logged) == _MOST_LOGGED:
                return
            self._logged.add((path, position))
        log.error("%s is damaged at %d: %s. Stop the broker and run `mqstore check` on its store", path, position, what)
        if last:
            log.error("damaged messages: %d are logged; further ones are counted but not logged", _MOST_LOGGED)
