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
# Groups and queues looked at before the loop serves others.
_AT_A_TIME: Final = 200


class BrokerProtection:
    """Takes ``consumeEnable`` from groups that read far behind the end of the log, and so from the disk.

    A group counts as far behind by the bytes of the log after its committed offset in any queue. RocketMQ measures the
    last pull instead, which is at most one batch further. Queues that a topic no longer has for reading do not count:
    nobody can read on in them.

    Args:
        config: ``disableConsumeIfConsumerReadSlowly`` and ``consumerFallbehindThreshold``.
        consumers: the online groups, which alone are looked at.
        offsets: how far groups have consumed.
        groups: the groups.
        queues: queues of the messages.
        log_end: returns the CommitLog offset after the last message.
        read_queue_nums: returns ``readQueueNums`` of a topic, ``None`` if there is no such topic.
    """

    def __init__(
        self,
        config: BrokerConfig,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        groups: SubscriptionGroupManager,
        queues: ConsumeQueueStore,
        log_end: Callable[[], int],
        read_queue_nums: Callable[[str], int | None],
    ) -> None:
        self._config = config
        self._consumers = consumers
        self._offsets = offsets
        self._groups = groups
        self._queues = queues
        self._log_end = log_end
        self._read_queue_nums = read_queue_nums
        self._tasks = TaskOwner("BrokerProtection")

    async def start(self) -> None:
        self._tasks.every(PERIOD_S, self.protect, "protect")

    async def stop(self) -> None:
        await self._tasks.stop()

    async def protect(self) -> None:
        """Look at each online group; others run in between. ``updateSubGroup`` lets a group consume again."""
        if not self._config.disable_consume_if_consumer_read_slowly:
            return
        looks = 0
        for name in list(self._consumers.groups):
            for _ in self._look_at(name):
                looks += 1
                if not looks % _AT_A_TIME:
                    await asyncio.sleep(0)

    def _look_at(self, name: str) -> Iterator[None]:
        """Disable a group that is too far behind in a queue; yield before each look, for others to run."""
        yield
        info = self._consumers.groups.get(name)
        if info is None or info.is_broadcasting or is_system_group(name):
            return
        for topic in list(info.subscription_table):
            yield
            readable = self._read_queue_nums(topic) or 0
            for queue_id, offset in self._offsets.offsets_of(name, topic).items():
                yield
                group = self._groups.groups.get(name)
                if group is None or not group.consume_enable:
                    return
                limit = self._config.consumer_fallbehind_threshold
                behind = self._bytes_behind(topic, queue_id, offset) if queue_id < readable else 0
                if behind > limit:
                    log.warning(
                        "consumer group %s is disabled: it is %s bytes behind in queue %s of topic %s, above %s "
                        "(consumerFallbehindThreshold); set its consumeEnable=true once it may read on",
                        name, f"{behind:,}", queue_id, topic, f"{limit:,}",
                    )  # fmt: skip
                    self._groups.update(msgspec.structs.replace(group, consume_enable=False, attributes={}))
                    return

    def _bytes_behind(self, topic: str, queue_id: int, offset: int) -> int:
        queue = self._queues.find(topic, queue_id)
        entry = None if queue is None else queue.entry(max(offset, queue.min_offset))
        return 0 if entry is None else self._log_end() - entry.physical_offset
