"""INVOKE_BROKER_TO_RESET_OFFSET (222): moves a group to a time or an offset (AdminBrokerProcessor.resetOffset)."""

import asyncio
from collections.abc import Iterable

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
from rocketbroker.codec.remoting.bodies.offset import ResetOffsetBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import ResetOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, StoreError, shown
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.admin.existing_group import check_existing_group
from rocketbroker.processor.support.loop_share import LoopShare, parts_of
from rocketbroker.processor.support.name_check import check_known_topic, check_queue
from rocketbroker.processor.support.offset_range import check_offset_range
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries

Header = ResetOffsetRequestHeader

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

    async def process(self, _connection: Connection, command: RemotingCommand[Header]) -> Command:
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

    def _queue_ids(self, header: Header) -> range:
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

    async def _targets(self, header: Header, queues: range) -> dict[int, int]:
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

    def _goes_back(self, header: Header, queue_id: int, target: int) -> bool:
        committed = self._offsets.query(header.group, header.topic, queue_id)
        return committed < 0 or target < committed

    async def _stored(self) -> None:
        try:
            await self._reset.store()
        except StoreError as error:
            raise _system_error(str(error)) from error

    async def _notify_clients(
        self, header: Header, channels: Iterable[ClientChannelInfo], offsets: dict[MessageQueue, int]
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
    def _clients(header: Header, info: ConsumerGroupInfo | None) -> list[ClientChannelInfo]:
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
