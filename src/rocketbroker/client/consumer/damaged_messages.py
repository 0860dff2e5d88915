"""Messages that cannot be read: how long they are pulled again, and when they are skipped."""

import logging
from collections.abc import Callable

from rocketbroker.client.pull_result import PullResult
from rocketbroker.client.queue_offsets import QueueOffsets
from rocketbroker.codec.message.message_ext import MessageQueue

log = logging.getLogger(__name__)

#: Difference that the clocks of client and broker may have, where no message of a queue was pulled.
CLOCK_MARGIN_MS = 10_000
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
            log.error("%s: %d damaged messages were skipped; the next one is sound", self._queue, self._skipped)
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
            log.error(text, self._queue, result.next_begin_offset, done, result.damage)
        return skip


async def after_a_move(
    offsets: QueueOffsets, queue: MessageQueue, offset: int, result: PullResult, known_ms: int
) -> int:
    """Return where to continue a queue that does not have an offset; log the move.

    A queue that ends below it belongs to a topic that was deleted and made again, or has lost its last messages.
    All messages of the former are new, and those of the latter were consumed. They differ in their store times: the
    queue is new if its first message is younger than what the consumer knew of the old one.

    Args:
        offsets: asks the brokers.
        queue: the queue.
        offset: the offset that does not exist.
        result: the answer to the pull at it.
        known_ms: store time of the last message that was pulled, or time at which the queue was taken.

    Raises:
        RocketBrokerError: a broker does not answer.
    """
    begin, end = result.min_offset, result.max_offset
    if end < offset and await offsets.search_offset(queue, known_ms + 1) <= begin:
        log.warning(
            "%s ends at %d, below %d, and its messages are new: its topic was made again; it is consumed from its "
            "beginning, %d",
            queue,
            end,
            offset,
            begin,
        )
        return begin
    log.warning("%s continues at %d instead of %d, which does not exist", queue, result.next_begin_offset, offset)
    return result.next_begin_offset
