"""Offsets at which a start truncates queues, to rebuild them from the log."""

from collections.abc import Collection, Mapping

from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.recovery.queue_tails import QueueTails


class QueueCuts:
    """Finds where to truncate all queues; nothing is changed before ``cut``.

    Args:
        queues: the queues.
        physical_offset: a CommitLog offset before which all messages are known to be in the queues.
        without_begin: queues to rebuild from their beginning.
        tails: finds entries that lead to no message.
        findings: takes a text for each damaged range of entries.
        ended: begin and end of queues at the clean stop before; ``None`` after an unclean one.
    """

    def __init__(
        self,
        queues: ConsumeQueueStore,
        physical_offset: int,
        without_begin: Collection[ConsumeQueueInterface],
        tails: QueueTails,
        findings: list[str],
        ended: Mapping[tuple[str, int], tuple[int, int]] | None,
    ) -> None:
        self._tails, self._findings, self._ended = tails, findings, ended
        self._positions = queues.positions_of(physical_offset)
        # Ends of the rebuilt queues: the log may have lost messages that were in them.
        self._known = {queue: self._positions[queue] for queue in without_begin}
        #: Earliest CommitLog offset to dispatch again after the queues were truncated.
        self.lacks_from = 0 if self._known else physical_offset
        for queue in self._positions:
            self._find_damage(queue, physical_offset)
        self._positions.update(dict.fromkeys(without_begin, 0))

    def _find_damage(self, queue: ConsumeQueueInterface, physical_offset: int) -> None:
        """Plan to truncate a queue after its last sound entry, or earlier if needed, to rebuild it from the log."""
        position, name = self._positions[queue], f"queue {queue.queue_id} of {queue.topic}"
        sound = self._positions[queue] = self._tails.sound_end(queue, position)
        is_behind = queue.has_before(physical_offset, position)
        if sound < position:
            self._findings.append(f"entries {sound} to {position} of {name} lead to no message, and are rebuilt")
            self._keep_end(queue, position)
        elif is_behind or (self._ended is not None and not self._tails.leads(queue, position)):
            self._findings.append(f"entry {position} of {name} is damaged, and rebuilt")
            self._keep_end(queue, position + 1)
        elif self._tails.leads(queue, position) or self._tails.may_be_lost(queue, position, physical_offset):
            # A power loss takes messages and leaves their entries.
            return
        self.lacks_from = min(self.lacks_from, queue.message_end(sound - 1))

    def _keep_end(self, queue: ConsumeQueueInterface, end: int) -> None:
        """Reserve the offsets before a queue offset, unless they are known to have never been used."""
        # Noise looks like entries too.
        _, known = (self._ended or {}).get((queue.topic, queue.queue_id), (0, end))
        self._known.setdefault(queue, min(end, known))

    def cut(self) -> None:
        """Truncate the queues."""
        for queue, position in self._positions.items():
            queue.cut(position)

    def reach_known_ends(self) -> None:
        """Make the rebuilt queues end no earlier than before.

        Raises:
            StoreFullError: The disk is full.
        """
        for queue, end in self._known.items():
            if queue.max_offset < end:
                queue.go_on_at(end)
