"""Protection of the broker from groups that are far behind (BrokerController.protectBroker)."""

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Final

import msgspec

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.codec.message.topic_validator import is_system_group
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

log = logging.getLogger(__name__)

PERIOD_S: Final = 180.0
# Queues looked at before the loop serves others.
_AT_A_TIME: Final = 200


class BrokerProtection:
    """Takes ``consumeEnable`` from groups that read far behind the end of the log, and so from the disk.

    A group counts as far behind by the bytes of the log after its committed offset in any queue. RocketMQ measures the
    last pull instead, which is at most one batch further.

    Args:
        config: ``disableConsumeIfConsumerReadSlowly`` and ``consumerFallbehindThreshold``.
        consumers: the online groups, which alone are looked at.
        offsets: how far groups have consumed.
        groups: the groups.
        queues: queues of the messages.
        log_end: returns the CommitLog offset after the last message.
    """

    def __init__(
        self,
        config: BrokerConfig,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        groups: SubscriptionGroupManager,
        queues: ConsumeQueueStore,
        log_end: Callable[[], int],
    ) -> None:
        self._config = config
        self._consumers = consumers
        self._offsets = offsets
        self._groups = groups
        self._queues = queues
        self._log_end = log_end
        self._tasks = TaskOwner("BrokerProtection")

    async def start(self) -> None:
        self._tasks.every(PERIOD_S, self.protect, "protect")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def protect(self) -> None:
        """Look at each online group; others run in between. ``updateSubGroup`` lets a group consume again."""
        if not self._config.disable_consume_if_consumer_read_slowly:
            return
        for number, (name, topic, queue_id, offset) in enumerate(list(self._committed()), 1):
            behind = self._bytes_behind(topic, queue_id, offset)
            group = self._groups.groups.get(name)
            limit = self._config.consumer_fallbehind_threshold
            if behind > limit and group is not None and group.consume_enable:
                log.warning(
                    "consumer group %s is disabled: it is %s bytes behind in queue %s of topic %s, above %s "
                    "(consumerFallbehindThreshold); set its consumeEnable=true once it may read on",
                    name, f"{behind:,}", queue_id, topic, f"{limit:,}",
                )  # fmt: skip
                self._groups.update(msgspec.structs.replace(group, consume_enable=False, attributes={}))
            if not number % _AT_A_TIME:
                await asyncio.sleep(0)

    def _committed(self) -> Iterator[tuple[str, str, int, int]]:
        """Yield group, topic, queue and committed offset of the groups that keep their offsets here."""
        for name, info in self._consumers.groups.items():
            if info.is_broadcasting or is_system_group(name):
                continue
            for topic in info.subscription_table:
                for queue_id, offset in self._offsets.offsets_of(name, topic).items():
                    yield name, topic, queue_id, offset

    def _bytes_behind(self, topic: str, queue_id: int, offset: int) -> int:
        queue = self._queues.find(topic, queue_id)
        entry = None if queue is None else queue.entry(max(offset, queue.min_offset))
        return 0 if entry is None else self._log_end() - entry.physical_offset
