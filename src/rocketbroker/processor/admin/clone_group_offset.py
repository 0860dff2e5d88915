"""CLONE_GROUP_OFFSET (314): copies the offsets of one group to another (AdminBrokerProcessor.cloneGroupOffset)."""

import asyncio

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import CloneGroupOffsetRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.support.loop_share import parts_of
from rocketbroker.processor.support.name_check import check_known_group, check_known_topic
from rocketbroker.processor.support.table_change import wait_settled

Header = CloneGroupOffsetRequestHeader


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

    async def process(self, _connection: Connection, command: RemotingCommand[Header]) -> Command:
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

    def _check(self, header: Header) -> None:
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

    def _topics_of(self, header: Header) -> list[str]:
        topics = [header.topic] if header.topic else sorted(self._offsets.topics_of(header.src_group))
        info = self._consumers.group_info(header.src_group)
        if not header.offline and info is not None and info.subscription_table:
            topics = [topic for topic in topics if topic in info.subscription_table]
        return [topic for topic in topics if self._topics.select(topic) is not None]
