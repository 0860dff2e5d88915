"""Which client may consume which queue in order (org.apache.rocketmq.broker.client.rebalance.RebalanceLockManager)."""

import logging
from collections.abc import Iterable
from typing import TypeVar

from rocketbroker.common.clock import Clock

log = logging.getLogger(__name__)

REBALANCE_LOCK_MAX_LIVE_S = 60.0
# More locks in one group than any has queues: the expired ones are looked for.
MANY_LOCKS = 10_000

# (topic, broker name, queue id) or any other hashable name of a queue.
Q = TypeVar("Q")


class _LockEntry:
    __slots__ = ("client_id", "locked_at")

    def __init__(self, client_id: str, locked_at: float) -> None:
        self.client_id = client_id
        self.locked_at = locked_at


class RebalanceLockManager:
    """Locks by group and queue; a lock that its client does not renew ends after 60 s."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._table: dict[str, dict[object, _LockEntry]] = {}

    def try_lock_batch(self, group: str, queues: Iterable[Q], client_id: str) -> list[Q]:
        """Lock or renew; returns the queues that the client holds now, in the order asked for."""
        now = self._clock.monotonic()
        entries = self._table.get(group)
        if entries is None:
            self._forget_expired(now)
            entries = self._table[group] = {}
        elif len(entries) > MANY_LOCKS:
            self._forget_expired(now)
            entries = self._table.setdefault(group, {})
        return [queue for queue in queues if self._try_lock(group, entries, queue, client_id, now)]

    def unlock_batch(self, group: str, queues: Iterable[object], client_id: str) -> None:
        """Release the queues that the client holds; those of others stay as they are."""
        entries = self._table.get(group, {})
        for queue in queues:
            entry = entries.get(queue)
            if entry is not None and entry.client_id == client_id:
                del entries[queue]
            else:
                log.debug("unlock of %s for %s in %s: it does not hold the lock", queue, client_id, group)
        if not entries:
            self._table.pop(group, None)

    def is_lock_all_expired(self, group: str) -> bool:
        """Whether no client holds a lock of the group."""
        now = self._clock.monotonic()
        return all(self._is_expired(entry, now) for entry in self._table.get(group, {}).values())

    def _forget_expired(self, now: float) -> None:
        for group, entries in list(self._table.items()):
            live = {queue: entry for queue, entry in entries.items() if not self._is_expired(entry, now)}
            if live:
                self._table[group] = live
            else:
                del self._table[group]

    def _try_lock(
        self, group: str, entries: dict[object, _LockEntry], queue: object, client_id: str, now: float
    ) -> bool:
        entry = entries.get(queue)
        if entry is None:
            log.info("%s locks %s in %s", client_id, queue, group)
            entries[queue] = _LockEntry(client_id, now)
            return True
        if entry.client_id != client_id:
            if not self._is_expired(entry, now):
                return False
            log.warning("%s takes over the expired lock of %s on %s in %s", client_id, entry.client_id, queue, group)
            entry.client_id = client_id
        entry.locked_at = now
        return True

    @staticmethod
    def _is_expired(entry: _LockEntry, now: float) -> bool:
        return now - entry.locked_at > REBALANCE_LOCK_MAX_LIVE_S
