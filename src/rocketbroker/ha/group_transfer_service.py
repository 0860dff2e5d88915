"""Waits of messages until enough slaves have them (GroupTransferService)."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from rocketbroker.store.flush.acknowledgement import ACKNOWLEDGED, Acknowledgement, OnAcknowledged


class GroupTransferService:
    """Acknowledges messages that ``inSyncReplicas`` brokers have, the master included.

    Args:
        config: ``inSyncReplicas`` and ``slaveTimeout``.

    Attributes:
        ack_offsets: returns the offset up to which each slave that counts has the log.
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        self._config = config
        self.ack_offsets: Callable[[], Sequence[int]] = tuple
        # Waits by offset, with their deadlines in loop time.
        self._waiting: deque[tuple[int, float, OnAcknowledged]] = deque()
        self._patience: asyncio.TimerHandle | None = None

    def acknowledge(self, result: PutMessageResult, tell: OnAcknowledged) -> None:
        """Call ``tell`` when enough slaves have a message, or when ``slaveTimeout`` has passed.

        As in RocketMQ, ``inSyncReplicas=1`` waits for no slave.
        """
        needed = self._config.in_sync_replicas - 1
        end = result.physical_offset + result.size
        if needed <= 0:
            tell(ACKNOWLEDGED)
            return
        loop, timeout_s = asyncio.get_running_loop(), self._config.slave_timeout / 1000
        self._waiting.append((end, loop.time() + timeout_s, tell))
        if self._patience is None:
            self._patience = loop.call_later(timeout_s, self._give_up)

    def reported(self) -> None:
        """Acknowledge the messages that enough slaves have."""
        waiting = self._waiting
        if not waiting:
            return
        offsets = sorted(self.ack_offsets(), reverse=True)
        needed = self._config.in_sync_replicas - 1
        confirmed = offsets[needed - 1] if 0 < needed <= len(offsets) else -1
        while waiting and waiting[0][0] <= confirmed:
            waiting.popleft()[2](ACKNOWLEDGED)
        if not waiting and self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        """End the waits whose deadline has passed."""
        loop = asyncio.get_running_loop()
        now, self._patience, waiting = loop.time(), None, self._waiting
        late = []
        while waiting and waiting[0][1] <= now:
            late.append(waiting.popleft()[2])
        if waiting:
            self._patience = loop.call_at(waiting[0][1], self._give_up)
        for tell in late:
            tell(self._late())

    def _late(self) -> Acknowledgement:
        config = self._config
        return Acknowledgement(
            PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
            f"the message was not on {config.in_sync_replicas - 1} slaves within {config.slave_timeout} ms "
            f"(inSyncReplicas, slaveTimeout); {len(self.ack_offsets())} slaves are connected",
        )
