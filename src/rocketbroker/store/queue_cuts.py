"""Where queues are cut off at a start, to be entered anew from the log."""

from collections.abc import Iterable

from rocketbroker.store.consume_queue import ConsumeQueue
from rocketbroker.store.consume_queue_store import ConsumeQueueStore


class QueueCuts:
    """Finds where all queues are to be cut; nothing is changed before ``cut``.

    Args:
        queues: the queues.
        physical_offset: a CommitLog offset before which all messages are known to be in the queues.
        without_begin: queues that are to be made anew from their begin.
        told: takes which entries are damaged, a text each.
    """

    def __init__(
        self, queues: ConsumeQueueStore, physical_offset: int, without_begin: Iterable[ConsumeQueue], told: list[str]
    ) -> None:
        self._positions = queues.positions_of(physical_offset)
        # Where those that are made anew ended: the log may have lost messages that were in them.
        self._known = {queue: self._positions[queue] for queue in without_begin}
        #: From which CommitLog offset on the queues lack messages once they are cut.
        self.lacks_from = 0 if self._known else physical_offset
        for queue, position in self._positions.items():
            if queue.has_before(physical_offset, position):
                told.append(f"entry {position} of queue {queue.queue_id} of {queue.topic} is damaged, and made anew")
                self.lacks_from = min(self.lacks_from, queue.message_end(position - 1))

    def cut(self) -> None:
        """Forget the entries."""
        for queue, position in self._positions.items():
            queue.cut(0 if queue in self._known else position)

    def reach_known_ends(self) -> None:
        """Have the queues that were made anew end nowhere before they did.

        Raises:
            StoreFullError: the disk has no room.
        """
        for queue, end in self._known.items():
            if queue.max_offset < end:
                queue.go_on_at(end)
