"""Return of messages whose invisible time is over (org.apache.rocketmq.broker.processor.PopReviveService).

A copy of each goes to the retry topic of the group, as in RocketMQ: to queue 0, or with ``useSeparateRetryQueue`` to
the queue of its own number, so that it keeps its priority. Copies and the record that acknowledges the originals are
stored in one turn of the event loop. A kill between them leaves the last copies of the log without that record;
``PopRecovery`` looks there. A message acknowledged while it was read from disk does not return.
"""

import logging
from typing import Final, NamedTuple

import msgspec

from rocketbroker.broker.broker_stats_manager import BrokerStatsManager
from rocketbroker.broker.message_copy import copy_message
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.pop.pop_check_points import TICK_MS, PopCheckPoints
from rocketbroker.broker.pop.pop_queues import OpenCheckPoint
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_decoder import decode_record
from rocketbroker.codec.message.message_ext import MessageExt
from rocketbroker.codec.message.message_properties import (
    MAX_PROPERTIES_LENGTH,
    get_property,
    remove_property,
    replace_property,
)
from rocketbroker.codec.message.pop_info import normal_topic, pop_retry_topic
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.topic_config import PERM_READ_WRITE, TopicConfig
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.common.lifecycle import TICK_S, TaskOwner
from rocketbroker.store.commitlog.put_message import (
    PERMANENT_FAILURES,
    MessageExtBrokerInner,
    PutMessageResult,
    PutMessageStatus,
)
from rocketbroker.store.message_appender import MessageAppender
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_fetcher import EntryReader

log = logging.getLogger(__name__)

# Check points that are closed before the loop serves others.
_MOST_DUE: Final = 32
# Messages, more or less, that return before the loop serves others.
_MOST_RETURNED: Final = 64
# Delay of messages that cannot return now.
_RETRY_MS: Final = 5_000
_RETRY_S: Final = 1.0
_POP_CK: Final = b"POP_CK"
_FIRST_POP_TIME: Final = b"1ST_POP_TIME"
_ORIGIN_GROUP: Final = b"ORIGIN_GROUP"


class _RetryQueue(NamedTuple):
    """Queue to which messages return."""

    topic: str
    queue_id: int


def _has(topic: TopicConfig | None, queue_id: int) -> bool:
    """Return true if messages can be stored in the queue of a topic, and read there."""
    return topic is not None and queue_id < min(topic.read_queue_nums, topic.write_queue_nums)


class PopReviveService:
    """Lets messages return.

    Args:
        config: version and queues of retry topics, and ``popReviveSkipIfGroupAbsent``.
        check_points: the open check points.
        queues: the queues of the store.
        reader: reads the messages.
        appender: append path of the copies.
        topics: table in which retry topics are created.
        groups: the groups; messages of one that is gone do not return.
        offsets: get the offset of a new retry topic.
        store_host: the broker's address in the form of records.
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a return depends on
        self,
        config: BrokerConfig,
        check_points: PopCheckPoints,
        queues: ConsumeQueueStore,
        reader: EntryReader,
        appender: MessageAppender,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        offsets: ConsumerOffsetManager,
        stats: BrokerStatsManager,
        clock: Clock,
        store_host: bytes,
    ) -> None:
        self._config = config
        self._check_points = check_points
        self._queues = queues
        self._reader = reader
        self._appender = appender
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._stats = stats
        self._clock = clock
        self._store_host = store_host
        self._tasks = TaskOwner("PopReviveService")

    async def start(self) -> None:
        """Begin to return what is due."""
        self._tasks.whenever(self.advance, _RETRY_S, "revive")

    async def stop(self) -> None:
        await self._tasks.stop()
        self._check_points.stop()

    async def advance(self) -> float:
        """Return what is due now, in part; return the seconds until the next part."""
        if (meters := self._stats.meters) is None:
            return await self._advance()
        began = self._clock.monotonic()
        pause_s = await self._advance()
        meters.scans.add((self._clock.monotonic() - began) * 1000)
        return pause_s

    async def _advance(self) -> float:
        check_points, now = self._check_points, self._clock.time_ms()
        due = check_points.due(now, _MOST_DUE)
        room = _MOST_RETURNED
        for each in due:
            if room <= 0:
                break
            if each.left:
                room -= each.left.bit_count()
                await self._revive(each)
        if due:
            self._appender.dispatch()
            return 0.0
        stored = check_points.store_again()
        check_points.advance()
        self._appender.dispatch()
        if stored:
            return 0.0
        next_ms = check_points.next_due_ms
        return TICK_S if next_ms is None else min(max(next_ms - now, TICK_MS) / 1000, TICK_S)

    async def _revive(self, check_point: OpenCheckPoint) -> None:
        """Return the messages of a check point, or let it be due later."""
        problem = ""
        try:
            retry_queue = self._retry_queue(check_point)
            if retry_queue is not None and not _has(self._topics.on_disk(retry_queue.topic), retry_queue.queue_id):
                # A kill could leave copies without their queue, and nobody would look for them.
                self._check_points.postpone(check_point, self._clock.time_ms() + TICK_MS)
                return
            while check_point.left and not problem:
                if retry_queue is None:
                    result = self._check_points.returned(check_point)
                else:
                    result = await self._return_some(check_point, retry_queue)
                if result.status is not PutMessageStatus.PUT_OK:
                    problem = f"[{result.status.name}] {result.reason}"
        except (StoreError, BrokerResponseError) as error:
            problem = str(error)
        queue = check_point.queue
        if not check_point.left and self._stats.meters is not None:
            self._stats.meters.revive_out[queue.group, queue.topic, check_point.revive_queue_id] += 1
        if problem and check_point.left:
            text = "messages of topic %s that group %s popped cannot return, and are tried again: %s"
            log.error(text, queue.topic, queue.group, problem)
            self._check_points.postpone(check_point, self._clock.time_ms() + _RETRY_MS)

    def _retry_queue(self, check_point: OpenCheckPoint) -> _RetryQueue | None:
        """Return the queue to which messages return, created if needed; ``None`` if nobody wants them any more."""
        queue, is_separate = check_point.queue, self._config.use_separate_retry_queue
        topic = normal_topic(queue.topic, queue.group)
        found = self._topics.select(topic)
        if found is None:
            log.warning("messages of topic %s do not return to group %s: the topic is gone", topic, queue.group)
            return None
        if self._config.pop_revive_skip_if_group_absent and not self._groups.contains(queue.group):
            log.warning("messages of topic %s do not return to group %s: the group is gone", topic, queue.group)
            return None
        name = queue.topic
        if not name.startswith(RETRY_GROUP_TOPIC_PREFIX):
            name = pop_retry_topic(topic, queue.group, 2 if self._config.enable_retry_topic_v2 else 1)
        queue_nums = max(found.write_queue_nums, 1) if is_separate else 1
        retry_topic = self._topics.select(name)
        if not _has(retry_topic, queue_nums - 1):
            if retry_topic is None:
                retry_topic = self._topics.create_in_send_message_back(name, queue_nums, PERM_READ_WRITE)
            else:
                # The topic has got queues, or the setting was off. None is ever taken away: messages may be in it.
                retry_topic = msgspec.structs.replace(
                    retry_topic,
                    read_queue_nums=max(retry_topic.read_queue_nums, queue_nums),
                    write_queue_nums=max(retry_topic.write_queue_nums, queue_nums),
                    attributes={},
                )
                self._topics.update(retry_topic)
            for queue_id in range(queue_nums):
                if self._offsets.query(queue.group, name, queue_id) < 0:
                    self._offsets.commit(queue.group, name, queue_id, 0)
        return _RetryQueue(name, queue.queue_id if is_separate and _has(retry_topic, queue.queue_id) else 0)

    async def _return_some(self, check_point: OpenCheckPoint, retry_queue: _RetryQueue) -> PutMessageResult:
        """Return the first messages of a check point, as many as one read takes.

        Raises:
            StoreError: The disk cannot be read.
        """
        queue = self._queues.find(check_point.queue.topic, check_point.queue.queue_id)
        if queue is None:
            return self._check_points.returned(check_point)
        entries = self._reader.entries_at(queue, check_point.unacknowledged)
        records = await self._reader.records(queue, entries)
        found = {each.queue_offset: each for each in map(decode_record, records)}
        # From here to the record that acknowledges the originals nothing may wait.
        open_offsets = set(check_point.unacknowledged)
        for offset in [entry[0] for entry in entries if entry[0] in open_offsets]:
            message = found.get(offset)
            if message is None:
                text = "message %d of topic %s, queue %d, does not return to group %s: it is removed or damaged"
                log.error(text, offset, queue.topic, queue.queue_id, check_point.queue.group)
                continue
            result = self._appender.put_copy(self.copy(message, check_point, *retry_queue))
            if result.status is PutMessageStatus.CREATE_MAPPED_FILE_FAILED and retry_queue.queue_id:
                # The process has no mappings left for new queues: better another priority than no return.
                retry_queue = retry_queue._replace(queue_id=0)
                result = self._appender.put_copy(self.copy(message, check_point, *retry_queue))
            if (meters := self._stats.meters) is not None:
                group = check_point.queue.group
                meters.revived[group, normal_topic(check_point.queue.topic, group), result.status.name] += 1
            if result.status is PutMessageStatus.PUT_OK:
                self._stats.topic_put(retry_queue.topic).add(1, result.size)
            elif result.status in PERMANENT_FAILURES:
                log.error("message %d of topic %s is lost: %s", offset, queue.topic, result.reason)
            else:
                return result
        return self._check_points.acknowledge(
            check_point.queue, check_point.start_offset, check_point.pop_time, [entry[0] for entry in entries]
        ).result

    def copy(
        self, message: MessageExt, check_point: OpenCheckPoint, topic: str, queue_id: int
    ) -> MessageExtBrokerInner:
        """Return the copy of a message for a queue of the retry topic."""
        # A message of a batch may carry the handle of an earlier delivery.
        properties = own = remove_property(message.properties_bytes, _POP_CK)
        if message.reconsume_times == 0 or get_property(properties, _FIRST_POP_TIME) is None:
            properties = replace_property(properties, _FIRST_POP_TIME, b"%d" % check_point.pop_time)
        properties = replace_property(properties, _ORIGIN_GROUP, check_point.queue.group.encode())
        # They are for people and clients only; a message without room for them returns without.
        if len(properties) > MAX_PROPERTIES_LENGTH:
            properties = own
        return copy_message(
            message,
            topic,
            queue_id,
            self._store_host,
            properties=properties,
            reconsume_times=message.reconsume_times + (not check_point.suspended),
        )
