"""Locks of orderly consumers (org.apache.rocketmq.broker.client.rebalance.RebalanceLockManager)."""

import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import TypeVar

from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)

REBALANCE_LOCK_MAX_LIVE_S = 60.0

# (topic, broker name, queue id) or any other hashable name of a queue.
Q = TypeVar("Q")


class _LockEntry:
    __slots__ = ("client_id", "locked_at")

    def __init__(self, client_id: str, locked_at: float) -> None:
        self.client_id = client_id
        self.locked_at = locked_at


# By queue. Finding the first entry of a plain dict skips all entries removed before it.
_Locks = OrderedDict[object, _LockEntry]


class RebalanceLockManager:
    """Locks by group and queue; a lock that its client does not renew expires after 60 s.

    Groups, and the queues of each, are in the order in which they were last locked or renewed. So expired locks come
    first, and removing them takes no search.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: OrderedDict[str, _Locks] = OrderedDict()

    def try_lock_batch(self, group: str, queues: Iterable[Q], client_id: str) -> list[Q]:
        """Lock or renew queues; return those that the client holds now, in the order of the request."""
        now = self._clock.monotonic()
        self._forget_expired_groups(now)
        entries = self._table.get(group)
        if entries is None:
            entries = OrderedDict()
        self._forget_expired(group, entries, now)
        locked = [queue for queue in queues if self._try_lock(group, entries, queue, client_id, now)]
        if entries:
            self._table[group] = entries
            self._table.move_to_end(group)
        else:
            self._table.pop(group, None)
        return locked

    def unlock_batch(self, group: str, queues: Iterable[object], client_id: str) -> None:
        """Release the queues that the client holds; locks of other clients remain."""
        entries = self._table.get(group)
        if entries is None:
            return
        for queue in queues:
            entry = entries.get(queue)
            if entry is not None and entry.client_id == client_id:
                del entries[queue]
        if not entries:
            del self._table[group]

    def is_lock_all_expired(self, group: str) -> bool:
        """Return true if no client holds a lock of the group."""
        entries = self._table.get(group)
        return not entries or self._is_expired(entries[next(reversed(entries))], self._clock.monotonic())

    def _forget_expired_groups(self, now: float) -> None:
        while self._table:
            group, entries = next(iter(self._table.items()))
            if not self._is_expired(entries[next(reversed(entries))], now):
                return
            self._table.popitem(last=False)
            log.info("rebalance: all %d locks of group %s have expired", len(entries), group)

    def _forget_expired(self, group: str, entries: _Locks, now: float) -> None:
        count = len(entries)
        while entries and self._is_expired(next(iter(entries.values())), now):
            entries.popitem(last=False)
        if count > len(entries):
            log.warning("rebalance: %d locks of group %s have expired", count - len(entries), group)

    def _try_lock(self, group: str, entries: _Locks, queue: object, client_id: str, now: float) -> bool:
        entry = entries.get(queue)
        if entry is None:
            log.debug("rebalance: %s locks %s in group %s", client_id, queue, group)
            entries[queue] = _LockEntry(client_id, now)
            return True
        if entry.client_id != client_id:
            return False
        entry.locked_at = now
        entries.move_to_end(queue)
        return True

    @staticmethod
    def _is_expired(entry: _LockEntry, now: float) -> bool:
        return now - entry.locked_at > REBALANCE_LOCK_MAX_LIVE_S
