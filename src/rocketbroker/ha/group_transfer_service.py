"""Waits of messages until enough slaves have them (GroupTransferService)."""

import asyncio
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from rocketbroker.common.config import MessageStoreConfig
from rocketbroker.store.commitlog.put_message import PutMessageResult, PutMessageStatus
from rocketbroker.store.flush.acknowledgement import ACKNOWLEDGED, Acknowledgement, OnAcknowledged


class _Wait(NamedTuple):
    """Wait for slaves to have the log up to a CommitLog offset; ``begun`` is in loop time."""

    end: int
    begun: float
    on_acknowledged: OnAcknowledged


class GroupTransferService:
    """Acknowledges messages that ``inSyncReplicas`` brokers have, the master included.

    Args:
        config: ``inSyncReplicas`` and ``slaveTimeout``.

    Attributes:
        ack_offsets: returns the offset up to which each slave that counts has the log.
        slaves: returns a text with the numbers of slaves.
    """

    def __init__(self, config: MessageStoreConfig) -> None:
        self._config = config
        self.ack_offsets: Callable[[], Sequence[int]] = tuple
        self.slaves: Callable[[], str] = str
        # By offset, and so by time too.
        self._waiting: deque[_Wait] = deque()
        self._patience: asyncio.TimerHandle | None = None

    def acknowledge(self, result: PutMessageResult, on_acknowledged: OnAcknowledged) -> None:
        """Call ``on_acknowledged`` when enough slaves have a message, or when ``slaveTimeout`` has passed.

        As in RocketMQ, ``inSyncReplicas=1`` waits for no slave.
        """
        if self._config.in_sync_replicas <= 1:
            on_acknowledged(ACKNOWLEDGED)
            return
        end = result.physical_offset + result.size
        self._waiting.append(_Wait(end, asyncio.get_running_loop().time(), on_acknowledged))
        if self._patience is None:
            self._set_timer()

    def reported(self) -> None:
        """Acknowledge the messages that enough slaves have. Call it now and then, as settings may change."""
        waiting = self._waiting
        if not waiting:
            return
        confirmed = self._confirmed()
        while waiting and waiting[0].end <= confirmed:
            waiting.popleft().on_acknowledged(ACKNOWLEDGED)
        self._set_timer()

    def _confirmed(self) -> int:
        """Return the CommitLog offset up to which enough slaves have the log."""
        needed = self._config.in_sync_replicas - 1
        if needed <= 0:
            return sys.maxsize
        offsets = sorted(self.ack_offsets(), reverse=True)
        return offsets[needed - 1] if needed <= len(offsets) else -1

    def _set_timer(self) -> None:
        """Call ``_give_up`` at the deadline of the first wait, or before it: never for each report."""
        timer, loop = self._patience, asyncio.get_running_loop()
        due = self._waiting[0].begun + self._config.slave_timeout / 1000 if self._waiting else None
        if timer is not None and (due is None or due < timer.when()):
            timer.cancel()
            timer = None
        if timer is None and due is not None:
            timer = loop.call_at(due, self._give_up)
        self._patience = timer

    def _give_up(self) -> None:
        """End the waits whose deadline has passed."""
        waiting, config, now = self._waiting, self._config, asyncio.get_running_loop().time()
        self._patience = None
        late = []
        while waiting and waiting[0].begun + config.slave_timeout / 1000 <= now:
            late.append(waiting.popleft().on_acknowledged)
        self._set_timer()
        if not late:
            return
        outcome = Acknowledgement(
            PutMessageStatus.FLUSH_SLAVE_TIMEOUT,
            f"the message was not on {config.in_sync_replicas - 1} slaves within {config.slave_timeout} ms "
            f"(inSyncReplicas, slaveTimeout); {self.slaves()}",
        )
        for on_acknowledged in late:
            on_acknowledged(outcome)
