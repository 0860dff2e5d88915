"""Locks of orderly consumers (org.apache.rocketmq.broker.client.rebalance.RebalanceLockManager)."""

import logging
from collections import OrderedDict
from collections.abc import Iterable
from hashlib import sha256
from typing import TypeVar

from rocketbroker.common.address_shares import AddressShares
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig

log = logging.getLogger(__name__)

REBALANCE_LOCK_MAX_LIVE_S = 60.0
_REPEAT_LOG_S = 10.0
# Expired locks that one call forgets, some 20 ms of the event loop; the next call goes on.
_MOST_FORGOTTEN = 10_000
# Longer ids are kept as their digest: each lock has its own copy.
_LONGEST_KEPT_ID = 128

# (topic, broker name, queue id) or any other hashable name of a queue.
Q = TypeVar("Q")


def _kept_id(client_id: str) -> str:
    return client_id if len(client_id) <= _LONGEST_KEPT_ID else sha256(client_id.encode()).hexdigest()


class _LockEntry:
    __slots__ = ("client_id", "locked_at", "share")

    def __init__(self, client_id: str, locked_at: float, share: bytes | None) -> None:
        self.client_id = client_id
        self.locked_at = locked_at
        self.share = share


# By queue. Finding the first entry of a plain dict skips all entries removed before it.
_Locks = OrderedDict[object, _LockEntry]


class RebalanceLockManager:
    """Locks by group and queue; a lock that its client does not renew expires after 60 s.

    Groups, and the queues of each, are in the order in which they were last locked or renewed. So expired locks come
    first, and removing them takes no search. Locks and the lengths of their texts are bounded, so that a client which
    asks for the locks of many groups takes some megabytes, for a minute.

    Args:
        config: ``maxQueueLocks``.

    Attributes:
        count: locks that are kept, also those that have expired and are not forgotten yet.
    """

    def __init__(self, clock: Clock, config: BrokerConfig | None = None) -> None:
        self._clock = clock
        self._config = config or BrokerConfig()
        self._table: OrderedDict[str, _Locks] = OrderedDict()
        self.count = 0
        self._shares = AddressShares()
        self._full_logged = float("-inf")

    def try_lock_batch(self, group: str, queues: Iterable[Q], client_id: str, share: bytes | None = None) -> list[Q]:
        """Lock or renew queues; return those that the client holds now, in the order of the request.

        Args:
            group: the consumer group.
            queues: the queues.
            client_id: the client; its length is checked.
            share: address whose share of ``maxQueueLocks`` the locks count for; ``None`` for a trusted peer.
        """
        client_id = _kept_id(client_id)
        now = self._clock.monotonic()
        self.forget_expired()
        entries = self._table.get(group)
        if entries is None:
            entries = OrderedDict()
        self._forget_expired(group, entries, now)
        locked = [queue for queue in queues if self._try_lock(group, entries, queue, client_id, now, share)]
        if entries:
            self._table[group] = entries
            self._table.move_to_end(group)
        else:
            self._table.pop(group, None)
        return locked

    def unlock_batch(self, group: str, queues: Iterable[object], client_id: str) -> None:
        """Release the queues that the client holds; locks of other clients remain."""
        client_id = _kept_id(client_id)
        entries = self._table.get(group)
        if entries is None:
            return
        for queue in queues:
            entry = entries.get(queue)
            if entry is not None and entry.client_id == client_id:
                self._removed(entries.pop(queue))
        if not entries:
            del self._table[group]

    @property
    def groups(self) -> list[str]:
        """Groups with locks, in the order of their latest calls."""
        return list(self._table)

    def queues(self, group: str) -> list[object]:
        """Return the queues of a group that are locked, in the order in which they were locked or renewed."""
        return list(self._table.get(group, ()))

    def is_lock_all_expired(self, group: str) -> bool:
        """Return true if no client holds a lock of the group."""
        entries = self._table.get(group)
        return not entries or self._is_expired(entries[next(reversed(entries))], self._clock.monotonic())

    def forget_expired(self) -> None:
        """Forget groups whose locks have all expired; called at intervals, as they may never lock again.

        A group stays in its place when its latest lock is released, so the others may be found up to a minute late.
        """
        now = self._clock.monotonic()
        forgotten: list[str] = []
        locks = 0
        while self._table and locks < _MOST_FORGOTTEN:
            group, entries = next(iter(self._table.items()))
            if not self._is_expired(entries[next(reversed(entries))], now):
                break
            self._table.popitem(last=False)
            forgotten.append(group)
            locks += len(entries)
            for entry in entries.values():
                self._removed(entry)
        if forgotten:
            # One line for all: a client may lock for any number of groups.
            others = f" and {len(forgotten) - 1:,} others" if len(forgotten) > 1 else ""
            log.info("rebalance: all %d locks of group %s%s have expired", locks, forgotten[0], others)

    def _forget_expired(self, group: str, entries: _Locks, now: float) -> None:
        count = len(entries)
        while entries and self._is_expired(next(iter(entries.values())), now):
            self._removed(entries.popitem(last=False)[1])
        if count > len(entries):
            log.warning("rebalance: %d locks of group %s have expired", count - len(entries), group)

    def _removed(self, entry: _LockEntry) -> None:
        self.count -= 1
        self._shares.remove(entry.share)

    def _has_room(self, share: bytes | None) -> bool:
        free = self._config.max_queue_locks - self.count
        if self._shares.allows(share, free):
            return True
        now = self._clock.monotonic()
        if now >= self._full_logged + _REPEAT_LOG_S:
            self._full_logged = now
            log.warning(
                "rebalance: maxQueueLocks: %d queues are locked, and the limit for all addresses is %d; orderly "
                "consumers wait; raise maxQueueLocks",
                self.count,
                self._config.max_queue_locks,
            )
        return False

    def _try_lock(
        self, group: str, entries: _Locks, queue: object, client_id: str, now: float, share: bytes | None
    ) -> bool:
        entry = entries.get(queue)
        if entry is None:
            if not self._has_room(share):
                return False
            log.debug("rebalance: %s locks %s in group %s", client_id, queue, group)
            entries[queue] = _LockEntry(client_id, now, share)
            self.count += 1
            self._shares.add(share)
            return True
        if entry.client_id != client_id:
            return False
        entry.locked_at = now
        entries.move_to_end(queue)
        return True

    @staticmethod
    def _is_expired(entry: _LockEntry, now: float) -> bool:
        return now - entry.locked_at > REBALANCE_LOCK_MAX_LIVE_S
