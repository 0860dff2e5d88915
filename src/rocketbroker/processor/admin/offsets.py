"""Offsets of queues, and resets of the offsets of groups (AdminBrokerProcessor)."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
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
from rocketbroker.codec.remoting.handler import Audience, Connection
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
from rocketbroker.codec.remoting.request_code import RequestCode
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
from rocketbroker.processor.support.request_family import NO_RESETS, answers
from rocketbroker.processor.support.table_change import wait_settled
from rocketbroker.processor.support.waiting_queries import WaitingQueries
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries

# Minimum of RocketMQ's BatchConsumeQueue before its first batch.
_NO_BATCH: Final = -1
_BOUNDARY_TYPES = ("LOWER", "UPPER")
# No offset: the reset is by time.
_BY_TIME = -1
_NO_CORRECTION = 2**63 - 1


@dataclass(frozen=True, slots=True)
class OffsetRequests:
    """Requests about the offsets of queues, and resets of the offsets of groups.

    Attributes:
        queues: the queues.
        topics: topics, which may have ``queue.type=BatchCQ``.
    """

    queues: ConsumeQueueStore
    topics: TopicConfigManager
    queries: MessageQueries
    waiting: WaitingQueries
    config: BrokerConfig
    groups: SubscriptionGroupManager
    consumers: ConsumerManager
    offsets: ConsumerOffsetManager
    reset: OffsetReset
    encoder: AnswerEncoder

    @answers(RequestCode.GET_MAX_OFFSET, GetMaxOffsetRequestHeader, Audience.CLIENT)
    def get_max_offset(self, _connection: Connection, command: RemotingCommand[GetMaxOffsetRequestHeader]) -> Command:
        """Answer the end of a queue; 0 for a queue that is empty or missing.

        The end is the offset after the last readable message, or with ``committed=false`` after the last stored
        one.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        queue = self.queues.find(header.topic, header.queue_id)
        if queue is None:
            return response(header=GetMaxOffsetResponseHeader(0))
        return response(header=GetMaxOffsetResponseHeader(queue.max_offset if header.committed else queue.next_offset))

    @answers(RequestCode.GET_MIN_OFFSET, GetMinOffsetRequestHeader, Audience.CLIENT)
    def get_min_offset(self, _connection: Connection, command: RemotingCommand[GetMinOffsetRequestHeader]) -> Command:
        """Answer the offset of the first message; without messages 0, or -1 if the queue holds batches. The
        remark is empty, as in RocketMQ.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        offset = self.queues.min_offset_in_queue(header.topic, header.queue_id)
        if not self.queues.max_offset_in_queue(header.topic, header.queue_id):
            topic = self.topics.select(header.topic)
            if topic is not None and topic.is_batch_cq:
                offset = _NO_BATCH
        return response(remark="", header=GetMinOffsetResponseHeader(offset))

    @answers(RequestCode.GET_EARLIEST_MSG_STORETIME, GetEarliestMsgStoretimeRequestHeader, Audience.CLIENT)
    def get_earliest_msg_storetime(
        self, _connection: Connection, command: RemotingCommand[GetEarliestMsgStoretimeRequestHeader]
    ) -> Command:
        """Answer a store time in ms; -1 for a queue without messages.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        timestamp = self.queries.earliest_message_time(header.topic, header.queue_id)
        return response(header=GetEarliestMsgStoretimeResponseHeader(timestamp))

    @answers(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, SearchOffsetRequestHeader, Audience.CLIENT)
    async def search_offset_by_timestamp(
        self, connection: Connection, command: RemotingCommand[SearchOffsetRequestHeader]
    ) -> Command:
        """Answer a queue offset; 0 for a queue without messages.

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
        async with self.waiting.one_more(connection):
            offset = await self.queries.offset_in_queue_by_time(*place, header.timestamp, boundary)
        return response(header=SearchOffsetResponseHeader(offset))

    @answers(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, ResetOffsetRequestHeader, at_slave=NO_RESETS)
    async def invoke_broker_to_reset_offset(
        self, _connection: Connection, command: RemotingCommand[ResetOffsetRequestHeader]
    ) -> Command:
        """Reset one queue, or all queues of a topic, and answer the new offsets.

        The answer follows once the offsets are on disk, or the clients are notified.

        The broker changes the offsets, and the group's consumers adopt them with their next pull. Consumers
        that keep their own offsets (broadcasting), or all with ``useServerSideResetOffset=false``, are notified
        by RESET_CONSUMER_CLIENT_OFFSET (220).

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST; INVALID_PARAMETER for an illegal name or
                queue; SYSTEM_ERROR for an offset that the queue does not have, when nothing would move, and when the
                disk refuses; CONSUMER_NOT_ONLINE when there is no client to notify.
        """
        header = command.header
        queues = self._queue_ids(header)
        targets = await self._targets(header, queues)
        info = self.consumers.group_info(header.group)
        offsets = {
            MessageQueue(header.topic, self.config.broker_name, queue_id): at for queue_id, at in targets.items()
        }
        missed: list[str] = []
        if self.reset.reaches(info):
            for part in parts_of(targets):
                self.reset.assign(header.group, header.topic, part)
                await asyncio.sleep(0)
            await self._stored()
        else:
            missed = await self._notify_clients(header, self._clients(header, info), offsets)
        remark = f"clients not notified because they read too slowly: {', '.join(missed)}" if missed else None
        return response(remark=remark, body=await self.encoder.encode(ResetOffsetBody(offsets), len(offsets)))

    def _queue_ids(self, header: ResetOffsetRequestHeader) -> range:
        """Return the queues to reset."""
        topic = self.topics.select(header.topic)
        if topic is None:
            check_known_topic(header.topic)
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        check_existing_group(self.groups, header.group)
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

    async def _targets(self, header: ResetOffsetRequestHeader, queues: range) -> dict[int, int]:
        """Return the new offsets by queue."""
        if header.offset is not None and header.offset != _BY_TIME:
            check_offset_range(self.queues, header.topic, header.queue_id, header.offset)
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
        end = self.queues.max_offset_in_queue(topic, queue_id)
        if timestamp_ms < 0:
            return end
        found = await self.queries.offset_in_queue_by_time(topic, queue_id, timestamp_ms)
        return max(found, self.queues.min_offset_in_queue(topic, queue_id))

    def _goes_back(self, header: ResetOffsetRequestHeader, queue_id: int, target: int) -> bool:
        committed = self.offsets.query(header.group, header.topic, queue_id)
        return committed < 0 or target < committed

    async def _stored(self) -> None:
        try:
            await self.reset.store()
        except StoreError as error:
            raise _system_error(str(error)) from error

    async def _notify_clients(
        self, header: ResetOffsetRequestHeader, channels: Iterable[ClientChannelInfo], offsets: dict[MessageQueue, int]
    ) -> list[str]:
        """Send clients their new offsets; return the ids of those that were not notified."""
        bodies: dict[str, bytes] = {}
        missed = []
        share = LoopShare()
        for channel in channels:
            if channel.language not in bodies:
                body = reset_offset_body(channel, offsets)
                bodies[channel.language] = await self.encoder.encode(body, len(offsets))
            if not reset_consumer_client_offset(channel, header, bodies[channel.language]):
                missed.append(shown(channel.client_id))
            await share.turn()
        return missed

    @staticmethod
    def _clients(header: ResetOffsetRequestHeader, info: ConsumerGroupInfo | None) -> list[ClientChannelInfo]:
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

    @answers(RequestCode.CLONE_GROUP_OFFSET, CloneGroupOffsetRequestHeader, at_slave=NO_RESETS)
    async def clone_group_offset(
        self, _connection: Connection, command: RemotingCommand[CloneGroupOffsetRequestHeader]
    ) -> Command:
        """Reset a group to the offsets of another, in one topic or in all topics in which the other has offsets.

        The answer follows when the offsets are on disk.

        If the broker resets nothing (``useServerSideResetOffset=false``, broadcasting), it stores the offsets
        without informing clients. They apply to consumers that start later. Missing topics are skipped. With
        ``offline=false``, so are topics to which the clients of the other group, if any, do not subscribe.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, SUBSCRIPTION_GROUP_NOT_EXIST; INVALID_PARAMETER for an illegal name;
                SYSTEM_ERROR when there is nothing to clone, and if the disk fails.
        """
        header = command.header
        self._check_clone(header)
        await wait_settled([self.groups.settled(header.dest_group)])
        found = {topic: self.offsets.offsets_of(header.src_group, topic) for topic in self._cloned_topics(header)}
        cloned = {topic: offsets for topic, offsets in found.items() if offsets}
        if not cloned:
            where = f"topic {header.topic}" if header.topic else "any topic"
            remark = f"group {header.src_group} has no offsets to clone in {where} that exists and is subscribed to"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        info = self.consumers.group_info(header.dest_group)
        move = self.reset.assign if self.reset.reaches(info) else self.reset.keep
        for topic, offsets in cloned.items():
            for part in parts_of(offsets):
                move(header.dest_group, topic, part)
                await asyncio.sleep(0)
        try:
            await self.reset.store()
        except StoreError as error:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        return response()

    def _check_clone(self, header: CloneGroupOffsetRequestHeader) -> None:
        if header.topic and self.topics.select(header.topic) is None:
            check_known_topic(header.topic)
            raise BrokerResponseError(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic} does not exist")
        check_known_group(header.src_group)
        if not self.groups.contains(header.src_group) and not self.offsets.topics_of(header.src_group):
            remark = f"Group {header.src_group} does not exist"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)
        check_known_group(header.dest_group)
        # This may create the group, as its first client would.
        if self.groups.find(header.dest_group) is None:
            remark = f"Group {header.dest_group} does not exist; autoCreateSubscriptionGroup is false here"
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark)

    def _cloned_topics(self, header: CloneGroupOffsetRequestHeader) -> list[str]:
        topics = [header.topic] if header.topic else sorted(self.offsets.topics_of(header.src_group))
        info = self.consumers.group_info(header.src_group)
        if not header.offline and info is not None and info.subscription_table:
            topics = [topic for topic in topics if topic in info.subscription_table]
        return [topic for topic in topics if self.topics.select(topic) is not None]

    @answers(RequestCode.QUERY_CORRECTION_OFFSET, QueryCorrectionOffsetHeader)
    async def query_correction_offset(
        self, _connection: Connection, command: RemotingCommand[QueryCorrectionOffsetHeader]
    ) -> Command:
        """Answers, for each queue, the lowest offset of any group, or 2^63 - 1 if the offset of ``compareGroup``
        is lower.

        Groups in ``filterGroups`` do not count, nor offsets before the first message. RocketMQ deletes the
        offsets of the groups in ``filterGroups``; here the query changes nothing.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if a group or the topic is illegal.
        """
        header = command.header
        check_known_topic(header.topic)
        check_known_group(header.compare_group)
        # Blanks belong to a name, as for the check of rights and in RocketMQ.
        least = await self._least_offsets(header.topic, set((header.filter_groups or "").split(",")))
        for queue_id, offset in self.offsets.offsets_of(header.compare_group, header.topic).items():
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = _NO_CORRECTION
        return response(body=QueryCorrectionOffsetBody(least).encode())

    async def _least_offsets(self, topic: str, left_out: set[str]) -> dict[int, int]:
        least: dict[int, int] = {}
        share = LoopShare()
        for group in self.offsets.groups_of(topic) - left_out:
            for queue_id, offset in self.offsets.offsets_of(group, topic).items():
                if offset >= self.queues.min_offset_in_queue(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
                await share.turn()
        return dict(sorted(least.items()))


def _system_error(remark: str) -> BrokerResponseError:
    return BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
