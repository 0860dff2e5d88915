"""Open half messages by their queue offsets (removeMap and opMsgMap of TransactionalMessageServiceImpl).

RocketMQ reads the op messages again for each check. Here they are read only at the start: only this process writes
them, so that memory always knows whether a transaction is open.
"""

from collections import deque
from collections.abc import Sequence

from rocketbroker.broker.transaction.transactional_message_util import TransactionKey


class HalfOffsets:
    """Open half messages from ``position`` on. All methods are for the event loop.

    Attributes:
        position: queue offset before which no half message is open: all were ended, put back, or discarded.
        ended: later half messages that are not open either.
        copies: the last copy of each open transaction whose half message was put back.
    """

    def __init__(self, position: int = 0, op_position: int = 0) -> None:
        self.position = position
        self.ended: set[int] = set()
        self.copies: dict[TransactionKey, int] = {}
        # Op messages still needed: their queue offset, and the last half message that each of them ends.
        self._op_messages: deque[tuple[int, int]] = deque()
        self._op_end = op_position

    def is_open(self, offset: int) -> bool:
        """Return true if the half message is open."""
        return offset >= self.position and offset not in self.ended

    def first_open(self, offset: int) -> int:
        """Return the first open offset from ``offset`` on, which may be beyond the last half message."""
        offset = max(offset, self.position)
        while offset in self.ended:
            offset += 1
        return offset

    def end(self, offset: int, key: TransactionKey | None = None) -> None:
        """Note that a half message is no longer open; with ``key``, neither is its transaction."""
        if offset >= self.position:
            self.ended.add(offset)
        if key is not None:
            self.copies.pop(key, None)
        self.advance()

    def put_back(self, offset: int, copy_offset: int, key: TransactionKey | None) -> None:
        """Note that a half message was replaced by a copy, which represents the transaction from now on."""
        self.end(offset)
        if key is not None:
            self.copies[key] = copy_offset

    def skip_to(self, offset: int) -> None:
        """Note that no half message before ``offset`` is open."""
        if offset > self.position:
            self.ended = {each for each in self.ended if each >= offset}
            self.position = offset
            self.advance()

    def advance(self) -> None:
        """Move the position past half messages that are not open."""
        position, ended = self.position, self.ended
        while position in ended:
            ended.discard(position)
            position += 1
        self.position = position

    def op_written(self, op_offset: int, offsets: Sequence[int]) -> None:
        """Note the half messages that the last op message of the queue ends."""
        self._op_end = op_offset + 1
        self._op_messages.append((op_offset, max(offsets, default=-1)))

    @property
    def op_position(self) -> int:
        """Queue offset before which op messages concern only half messages before ``position``."""
        messages = self._op_messages
        while messages and messages[0][1] < self.position:
            messages.popleft()
        return messages[0][0] if messages else self._op_end
