"""Offsets that were reset and that no consumer has taken over yet (``resetOffsetTable`` of ConsumerOffsetManager).

A running consumer knows nothing of a reset: it has messages that it pulled before, and commits what it has consumed,
which would undo the reset. So the first pull of each client is answered with the new offset, whatever it asks for, and
commits do not count until one that was told pulls again. RocketMQ forgets a reset as soon as one pull was told; a
consumer that dies then, or one of 4.x, which waits for 10 s before it moves, may commit the old offset afterwards.
"""

from collections.abc import Callable, Mapping
from weakref import WeakSet

from rocketbroker.codec.remoting.handler import Connection


class _Reset:
    """The offset to go to, and the connections whose pulls were told of it; those that are closed are forgotten."""

    __slots__ = ("offset", "told")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.told: WeakSet[Connection] = WeakSet()


class ResetOffsetTable:
    """Resets by ``topic@group`` and queue. All methods are for the event loop."""

    def __init__(self) -> None:
        self._resets: dict[str, dict[int, _Reset]] = {}

    def __bool__(self) -> bool:
        return bool(self._resets)

    def assign(self, key: str, queue_id: int, offset: int) -> None:
        """Have the consumer of a queue go to an offset; an earlier reset is forgotten."""
        self._resets.setdefault(key, {})[queue_id] = _Reset(offset)

    def holds(self, key: str, queue_id: int) -> bool:
        """Return whether the queue was reset and no client has taken over the offset yet."""
        return queue_id in self._resets.get(key, ())

    def redirect(self, key: str, queue_id: int, connection: Connection) -> int | None:
        """Return the offset at which the pull of a client must continue; ``None`` to serve it.

        It makes no difference where it pulls from: a client that pulls from the new offset by chance may still have
        messages from before it, and one that was told may do as it likes.
        """
        reset = self._resets.get(key, {}).get(queue_id)
        if reset is None:
            return None
        if connection in reset.told:
            self.forget(key, queue_id)
            return None
        reset.told.add(connection)
        return reset.offset

    def forget(self, key: str, queue_id: int) -> None:
        """Forget the reset of a queue, if there is one."""
        queues = self._resets.get(key, {})
        if queues.pop(queue_id, None) is not None and not queues:
            del self._resets[key]

    def remove(self, belongs: Callable[[str], bool]) -> None:
        """Forget the resets of those keys."""
        self._resets = {key: queues for key, queues in self._resets.items() if not belongs(key)}

    def offsets(self) -> dict[str, dict[int, int]]:
        """The offsets, as a copy, for the file."""
        return {
            key: {queue_id: reset.offset for queue_id, reset in queues.items()} for key, queues in self._resets.items()
        }

    def take(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Begin with the resets of a file."""
        self._resets = {
            key: {queue_id: _Reset(offset) for queue_id, offset in queues.items()}
            for key, queues in table.items()
            if queues
        }
