"""Offsets of queues, and resets of the offsets of groups (AdminBrokerProcessor)."""

import asyncio
from collections.abc import Iterable
from typing import Final

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.consumer_group_info import ConsumerGroupInfo
from rocketbroker.broker.client.consumer_manager import (
    ASKS_FROM_VERSION,
    ConsumerManager,
    reset_consumer_client_offset,
    reset_offset_body,
)
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import ConsumeType
from rocketbroker.codec.remoting.bodies.offset import QueryCorrectionOffsetBody, ResetOffsetBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import (
    CloneGroupOffsetRequestHeader,
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryCorrectionOffsetHeader,
    ResetOffsetRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError, shown
from rocketbroker.processor.support.long_answers import AnswerEncoder, LoopShare, parts_of
from rocketbroker.processor.support.request_checks import (
    check_existing_group,
    check_known_group,
    check_known_topic,
    check_offset_range,
    check_queue,
)
from rocketbroker.processor.support.table_change import wait_settled
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries


class GetMaxOffsetProcessor:
    """Answers the end of a queue; 0 for a queue that is empty or missing.

    The end is the offset after the last readable message, or with ``committed=false`` after the last stored one.
    """

    def __init__(self, queues: ConsumeQueueStore) -> None:
        self._queues = queues

    def process(self, _connection: Connection, command: RemotingCommand[GetMaxOffsetRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        queue = self._queues.find(header.topic, header.queue_id)
        if queue is None:
            return response(header=GetMaxOffsetResponseHeader(0))
        return response(header=GetMaxOffsetResponseHeader(queue.max_offset if header.committed else queue.next_offset))


# Minimum of RocketMQ's BatchConsumeQueue before its first batch.
_NO_BATCH: Final = -1


class GetMinOffsetProcessor:
    """Answers the offset of the first message; without messages 0, or -1 if the queue holds batches.

    Args:
        queues: the queues.
        topic_configs: topics, which may have ``queue.type=BatchCQ``.
    """

    def __init__(self, queues: ConsumeQueueStore, topic_configs: TopicConfigManager) -> None:
        self._queues = queues
        self._topic_configs = topic_configs

    def process(self, _connection: Connection, command: RemotingCommand[GetMinOffsetRequestHeader]) -> Command:
        """Answer the request, with an empty remark as RocketMQ does.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        offset = self._queues.min_offset_in_queue(header.topic, header.queue_id)
        if not self._queues.max_offset_in_queue(header.topic, header.queue_id):
            topic = self._topic_configs.select(header.topic)
            if topic is not None and topic.is_batch_cq:
                offset = _NO_BATCH
        return response(remark="", header=GetMinOffsetResponseHeader(offset))


class GetEarliestMsgStoretimeProcessor:
    """Answers a store time in ms; -1 for a queue without messages."""

    def __init__(self, queries: MessageQueries) -> None:
        self._queries = queries

    def process(
        self, _connection: Connection, command: RemotingCommand[GetEarliestMsgStoretimeRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        timestamp = self._queries.earliest_message_time(header.topic, header.queue_id)
        return response(header=GetEarliestMsgStoretimeResponseHeader(timestamp))


_BOUNDARY_TYPES = ("LOWER", "UPPER")


class SearchOffsetByTimestampProcessor:
    """Answers a queue offset; 0 for a queue without messages."""

    def __init__(self, queries: MessageQueries, waiting: WaitingQueries) -> None:
        self._queries = queries
        self._waiting = waiting

    async def process(self, connection: Connection, command: RemotingCommand[SearchOffsetRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic, the queue or ``boundaryType`` is illegal; SYSTEM_BUSY
                if too many queries wait.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        boundary = (header.boundary_type or "LOWER").upper()
        if boundary not in _BOUNDARY_TYPES:
            remark = f"the boundaryType {boundary[:64]!r} is illegal; use LOWER or UPPER"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        place = header.topic, header.queue_id
        async with self._waiting.one_more(connection):
            offset = await self._queries.offset_in_queue_by_time(*place, header.timestamp, boundary)
        return response(header=SearchOffsetResponseHeader(offset))


ResetHeader = ResetOffsetRequestHeader

# No offset: the reset is by time.
_BY_TIME = -1


class InvokeBrokerToResetOffsetProcessor:
    """Resets one queue, or all queues of a topic, and answers the new offsets.

    The broker changes the offsets, and the group's consumers adopt them with their next pull. Consumers that keep their
    own offsets (broadcasting), or all with ``useServerSideResetOffset=false``, are notified by
    RESET_CONSUMER_CLIENT_OFFSET (220).
    """

    def __init__(  # noqa: PLR0913, PLR0917 - each is one thing that a reset depends on
        self,
        config: BrokerConfig,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        reset: OffsetReset,
        encoder: AnswerEncoder,
    ) -> None:
        self._config = config
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._queues = queues
        self._queries = queries
        self._reset = reset
        self._encoder = encoder

    async def process(self, _connection: Connection, command: RemotingCommand[ResetHeader]) -> Command:
        """Answer the request once the offsets are on disk, or the clients are notified.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST; INVALID_PARAMETER for an illegal name or
                queue; SYSTEM_ERROR for an offset that the queue does not have, when nothing would move, and when the
                disk refuses; CONSUMER_NOT_ONLINE when there is no client to notify.
        """
        header = command.header
        queues = self._queue_ids(header)
        targets = await self._targets(header, queues)
        info = self._consumers.group_info(header.group)
        offsets = {
            MessageQueue(header.topic, self._config.broker_name, queue_id): at for queue_id, at in targets.items()
        }
        missed: list[str] = []
        if self._reset.reaches(info):
            for part in parts_of(targets):
                self._reset.assign(header.group, header.topic, part)
                await asyncio.sleep(0)
            await self._stored()
        else:
            missed = await self._notify_clients(header, self._clients(header, info), offsets)
        remark = f"clients not notified because they read too slowly: {', '.join(missed)}" if missed else None
        return response(remark=remark, body=await self._encoder.encode(ResetOffsetBody(offsets), len(offsets)))

    def _queue_ids(self, header: ResetHeader) -> range:
        """Return the queues to reset."""
        topic = self._topics.select(header.topic)
        if topic is None:
            check_known_topic(header.topic)
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        check_existing_group(self._groups, header.group)
        count = topic.read_queue_nums
        if not count:
            raise _system_error(f"No queues to reset. The readQueueNums of topic {header.topic} is 0")
        if header.queue_id >= 0:
            check_queue(header.topic, header.queue_id, count)
            return range(header.queue_id, header.queue_id + 1)
        if header.offset not in {None, _BY_TIME}:
            remark = f"offset {header.offset} is for one queue only; set a queueId from 0 to {count - 1}"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        return range(count)

    async def _targets(self, header: ResetHeader, queues: range) -> dict[int, int]:
        """Return the new offsets by queue."""
        if header.offset is not None and header.offset != _BY_TIME:
            check_offset_range(self._queues, header.topic, header.queue_id, header.offset)
            return {header.queue_id: header.offset}
        targets = {}
        share = LoopShare()
        for queue_id in queues:
            targets[queue_id] = await self._at_time(header.topic, queue_id, header.timestamp)
            await share.turn()
        if header.is_force:
            return targets
        back = {queue_id: at for queue_id, at in targets.items() if self._goes_back(header, queue_id, at)}
        if not back:
            raise _system_error(
                f"group {header.group} is at or before that time in each of {len(targets)} queues of topic "
                f"{header.topic}; set isForce=true to move it forward"
            )
        return back

    async def _at_time(self, topic: str, queue_id: int, timestamp_ms: int) -> int:
        end = self._queues.max_offset_in_queue(topic, queue_id)
        if timestamp_ms < 0:
            return end
        found = await self._queries.offset_in_queue_by_time(topic, queue_id, timestamp_ms)
        return max(found, self._queues.min_offset_in_queue(topic, queue_id))

    def _goes_back(self, header: ResetHeader, queue_id: int, target: int) -> bool:
        committed = self._offsets.query(header.group, header.topic, queue_id)
        return committed < 0 or target < committed

    async def _stored(self) -> None:
        try:
            await self._reset.store()
        except StoreError as error:
            raise _system_error(str(error)) from error

    async def _notify_clients(
        self, header: ResetHeader, channels: Iterable[ClientChannelInfo], offsets: dict[MessageQueue, int]
    ) -> list[str]:
        """Send clients their new offsets; return the ids of those that were not notified."""
        bodies: dict[str, bytes] = {}
        missed = []
        share = LoopShare()
        for channel in channels:
            if channel.language not in bodies:
                body = reset_offset_body(channel, offsets)
                bodies[channel.language] = await self._encoder.encode(body, len(offsets))
            if not reset_consumer_client_offset(channel, header, bodies[channel.language]):
                missed.append(shown(channel.client_id))
            await share.turn()
        return missed

    @staticmethod
    def _clients(header: ResetHeader, info: ConsumerGroupInfo | None) -> list[ClientChannelInfo]:
        """Return the clients to notify."""
        if info is None:
            remark = (
                f"Consumer not online, so can not reset offset, Group: {header.group} Topic: {header.topic} "
                f"Timestamp: {header.timestamp}"
            )
            raise BrokerResponseError(ResponseCode.CONSUMER_NOT_ONLINE, remark)
        if info.consume_type is ConsumeType.CONSUME_ACTIVELY:
            raise _system_error(
                f"the clients of group {header.group} pull by themselves (CONSUME_ACTIVELY) and take no offsets from "
                "the broker; call seek in the clients"
            )
        channels = list(info.channels.values())
        for channel in channels:
            if channel.version < ASKS_FROM_VERSION:
                raise _system_error(
                    f"the client does not support this feature. version={channel.version} of {channel!r}; "
                    f"use {ASKS_FROM_VERSION} (V3_0_7_SNAPSHOT) or later"
                )
        return channels


def _system_error(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)


CloneHeader = CloneGroupOffsetRequestHeader


class CloneGroupOffsetProcessor:
    """Resets a group to the offsets of another, in one topic or in all topics in which the other has offsets.

    If the broker resets nothing (``useServerSideResetOffset=false``, broadcasting), it stores the offsets without
    informing clients. They apply to consumers that start later.
    Missing topics are skipped. With ``offline=false``, so are topics to which the clients of the other group, if any,
    do not subscribe.
    """

    def __init__(
        self,
        topics: TopicConfigManager,
        groups: SubscriptionGroupManager,
        consumers: ConsumerManager,
        offsets: ConsumerOffsetManager,
        reset: OffsetReset,
    ) -> None:
        self._topics = topics
        self._groups = groups
        self._consumers = consumers
        self._offsets = offsets
        self._reset = reset

    async def process(self, _connection: Connection, command: RemotingCommand[CloneHeader]) -> Command:
        """Answer the request when the offsets are on disk.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST; INVALID_PARAMETER for an illegal name;
                SYSTEM_ERROR when there is nothing to clone, and if the disk fails.
        """
        header = command.header
        self._check(header)
        await wait_settled([self._groups.settled(header.dest_group)])
        found = {topic: self._offsets.offsets_of(header.src_group, topic) for topic in self._topics_of(header)}
        cloned = {topic: offsets for topic, offsets in found.items() if offsets}
        if not cloned:
            where = f"topic {header.topic}" if header.topic else "any topic"
            remark = f"group {header.src_group} has no offsets to clone in {where} that exists and is subscribed to"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        info = self._consumers.group_info(header.dest_group)
        move = self._reset.assign if self._reset.reaches(info) else self._reset.keep
        for topic, offsets in cloned.items():
            for part in parts_of(offsets):
                move(header.dest_group, topic, part)
                await asyncio.sleep(0)
        try:
            await self._reset.store()
        except StoreError as error:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return response()

    def _check(self, header: CloneHeader) -> None:
        if header.topic and self._topics.select(header.topic) is None:
            check_known_topic(header.topic)
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        check_known_group(header.src_group)
        if not self._groups.contains(header.src_group) and not self._offsets.topics_of(header.src_group):
            remark = f"Group {header.src_group} does not exist"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        check_known_group(header.dest_group)
        # This may create the group, as its first client would.
        if self._groups.find(header.dest_group) is None:
            remark = f"Group {header.dest_group} does not exist; autoCreateSubscriptionGroup is false here"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    def _topics_of(self, header: CloneHeader) -> list[str]:
        topics = [header.topic] if header.topic else sorted(self._offsets.topics_of(header.src_group))
        info = self._consumers.group_info(header.src_group)
        if not header.offline and info is not None and info.subscription_table:
            topics = [topic for topic in topics if topic in info.subscription_table]
        return [topic for topic in topics if self._topics.select(topic) is not None]


_NO_CORRECTION = 2**63 - 1


class QueryCorrectionOffsetProcessor:
    """Answers, for each queue, the lowest offset of any group, or 2^63 - 1 if the offset of ``compareGroup`` is lower.

    Groups in ``filterGroups`` do not count, nor offsets before the first message. RocketMQ deletes the offsets of the
    groups in ``filterGroups``; here the query changes nothing.
    """

    def __init__(self, offsets: ConsumerOffsetManager, queues: ConsumeQueueStore) -> None:
        self._offsets = offsets
        self._queues = queues

    async def process(self, _connection: Connection, command: RemotingCommand[QueryCorrectionOffsetHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if a group or the topic is illegal.
        """
        header = command.header
        check_known_topic(header.topic)
        check_known_group(header.compare_group)
        least = await self._least(header.topic, {name.strip() for name in (header.filter_groups or "").split(",")})
        for queue_id, offset in self._offsets.offsets_of(header.compare_group, header.topic).items():
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = _NO_CORRECTION
        return response(body=QueryCorrectionOffsetBody(least).encode())

    async def _least(self, topic: str, left_out: set[str]) -> dict[int, int]:
        least: dict[int, int] = {}
        share = LoopShare()
        for group in self._offsets.groups_of(topic) - left_out:
            for queue_id, offset in self._offsets.offsets_of(group, topic).items():
                if offset >= self._queues.min_offset_in_queue(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
                await share.turn()
        return dict(sorted(least.items()))
