"""Messages that cannot be read: how long they are pulled again, and when they are skipped."""

import logging
from collections.abc import Callable

from rocketbroker.client.pull_result import PullResult
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue

log = logging.getLogger(__name__)

# Seconds between two lines about one queue.
_REMIND_S = 60.0


class DamagedMessages:
    """Retries and skips the damaged messages of one queue.

    Damage may pass: a broker fails over to one with a sound copy, or a record was read while it was being mended. So it
    is pulled again for a while. Later messages then matter more than one that nobody can read: it is skipped, as are
    those that follow it at once. Otherwise a damaged page would hold up its queue for a minute a message.

    Args:
        queue: the queue.
        retry_s: seconds for which the first damaged message in a row is pulled again.
        monotonic: seconds of a clock that never goes back.
    """

    def __init__(self, queue: MessageQueue, retry_s: float, monotonic: Callable[[], float]) -> None:
        self._queue = queue
        self._retry_s = retry_s
        self._monotonic = monotonic
        self._since: float | None = None
        self._logged_at = float("-inf")
        self._skipped = 0

    def sound(self) -> None:
        """Note that the next message could be read."""
        if self._skipped:
            self._say("%s: %d damaged messages were skipped; the next one is sound", self._queue, self._skipped)
        self._since, self._logged_at, self._skipped = None, float("-inf"), 0

    def skips(self, result: PullResult) -> bool:
        """Return true if the damaged message at the offset of the next pull is to be skipped; log it each minute."""
        now = self._monotonic()
        if self._since is None:
            self._since = now
        skip = now - self._since >= self._retry_s
        self._skipped += skip
        if now - self._logged_at >= _REMIND_S:
            self._logged_at = now
            done = "skipped" if skip else f"pulled again, for {self._retry_s:g} s (damaged_message_retry_s)"
            text = "%s: the message at %d is damaged and %s: %s; see mqstore check at the broker"
            self._say(text, self._queue, result.next_begin_offset, done, result.damage)
        return skip

    @staticmethod
    def _say(text: str, *values: object) -> None:
        log.error(text, *values)
