"""Offsets that were reset and that no consumer has taken over yet (``resetOffsetTable`` of ConsumerOffsetManager).

A running consumer does not know of a reset: it has messages that it pulled before, and commits what it has consumed,
which would undo the reset. So the first pull of each client is answered with the new offset, whatever it asks for, and
commits do not count until a redirected client pulls again. RocketMQ forgets a reset as soon as one pull was redirected.
A consumer that dies then, or one of 4.x, which waits 10 s before it moves, may commit the old offset afterwards.
"""

from collections.abc import Callable, Mapping
from weakref import WeakSet

from rocketbroker.codec.remoting.handler import Connection


class _Reset:
    """The new offset, and the open connections whose pulls were redirected to it."""

    __slots__ = ("offset", "redirected")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.redirected: WeakSet[Connection] = WeakSet()


class ResetOffsetTable:
    """Resets by ``topic@group`` and queue. All methods are for the event loop."""

    def __init__(self) -> None:
        self._resets: dict[str, dict[int, _Reset]] = {}

    def __bool__(self) -> bool:
        return bool(self._resets)

    def assign(self, key: str, queue_id: int, offset: int) -> None:
        """Reset a queue to an offset; this replaces an earlier reset."""
        self._resets.setdefault(key, {})[queue_id] = _Reset(offset)

    def holds(self, key: str, queue_id: int) -> bool:
        """Return true if the queue was reset and no client has taken over the offset yet."""
        return queue_id in self._resets.get(key, ())

    def redirect(self, key: str, queue_id: int, connection: Connection) -> int | None:
        """Return the offset at which the pull of a client must continue; ``None`` to serve it.

        The offset of the pull makes no difference: a client that pulls from the new offset by chance may still have
        older messages, and a redirected one may pull from anywhere.
        """
        reset = self._resets.get(key, {}).get(queue_id)
        if reset is None:
            return None
        if connection in reset.redirected:
            self.forget(key, queue_id)
            return None
        reset.redirected.add(connection)
        return reset.offset

    def forget(self, key: str, queue_id: int) -> None:
        """Forget the reset of a queue, if there is one."""
        queues = self._resets.get(key, {})
        if queues.pop(queue_id, None) is not None and not queues:
            del self._resets[key]

    def remove(self, belongs: Callable[[str], bool]) -> None:
        """Forget the resets of the keys that ``belongs`` selects."""
        self._resets = {key: queues for key, queues in self._resets.items() if not belongs(key)}

    def offsets(self) -> dict[str, dict[int, int]]:
        """Return a copy of the offsets for the file."""
        return {
            key: {queue_id: reset.offset for queue_id, reset in queues.items()} for key, queues in self._resets.items()
        }

    def take(self, table: Mapping[str, Mapping[int, int]]) -> None:
        """Replace the resets by those of a file."""
        self._resets = {
            key: {queue_id: _Reset(offset) for queue_id, offset in queues.items()}
            for key, queues in table.items()
            if queues
        }
