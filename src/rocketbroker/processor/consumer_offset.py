"""Committed offsets of groups: UPDATE_CONSUMER_OFFSET (15), QUERY_CONSUMER_OFFSET (14) (ConsumerManageProcessor)."""

from dataclasses import dataclass

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.offset_reset import OffsetReset
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.message import (
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.request_checks import check_client_group, check_offset_range
from rocketbroker.processor.support.request_family import answers
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_fetcher import MessageFetcher

_NOT_FOUND = "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first"
_NOT_ZERO = "Not found, do not set to zero, maybe this group boot first"


_SHOWN = 255
_WAS_RESET = "Offset has been previously reset"


@dataclass(frozen=True, slots=True)
class ConsumerOffsetRequests:
    """Requests of consumers about the offsets of their groups."""

    offsets: ConsumerOffsetManager
    fetcher: MessageFetcher
    groups: SubscriptionGroupManager
    topics: TopicConfigManager
    consumers: ConsumerManager
    queues: ConsumeQueueStore
    reset: OffsetReset

    @answers(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetRequestHeader, Audience.CLIENT)
    def query_consumer_offset(
        self, _connection: Connection, command: RemotingCommand[QueryConsumerOffsetRequestHeader]
    ) -> Command:
        """Answer the committed offset. QUERY_NOT_FOUND for a group without an offset.

        A new group gets 0 while the first message of the queue is still in memory, so that it misses nothing of
        a young topic, whatever its own consumeFromWhere.
        """
        header = command.header
        offset = self.offsets.query(header.consumer_group, header.topic, header.queue_id)
        if offset >= 0:
            return response(header=QueryConsumerOffsetResponseHeader(offset))
        if header.set_zero_if_not_found is False:
            return response(ResponseCode.QUERY_NOT_FOUND, _NOT_ZERO, {})
        if self.fetcher.is_in_memory(header.topic, header.queue_id, 0):
            return response(header=QueryConsumerOffsetResponseHeader(0))
        return response(ResponseCode.QUERY_NOT_FOUND, _NOT_FOUND, {})

    @answers(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetRequestHeader, Audience.CLIENT)
    def update_consumer_offset(
        self, connection: Connection, command: RemotingCommand[UpdateConsumerOffsetRequestHeader]
    ) -> Command:
        """Commit the offset of a group in a topic, if both exist. -1 is stored too and means that nothing is
        consumed.

        Administration tools send the same request as consumers. They differ in three ways: they are
        administrators, they expect an answer, which RocketMQ's clients do not, and their connection is not a
        client of the group. For a group with clients their request is a reset, because the next commit of a
        client would undo it otherwise.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if administration sets an offset beyond the end of the queue, or there are
                too many offsets; SUBSCRIPTION_GROUP_NOT_EXIST if there are too many groups to create one that has
                pulled; NO_PERMISSION if a stranger commits for a group with clients, or for one of the broker's own.
        """
        header = command.header
        refused = self._refusal(header)
        if refused is not None:
            return refused
        check_client_group(header.consumer_group, connection)
        if not self.consumers.may_commit(header.consumer_group, connection):
            raise _not_a_member(header.consumer_group, connection)
        self.groups.find(header.consumer_group, connection.share)
        info = self.consumers.group_info(header.consumer_group)
        if command.is_oneway or (info is not None and connection in info.channels):
            return self._commit(connection, header)
        if header.commit_offset > self.queues.min_offset_in_queue(header.topic, header.queue_id):
            check_offset_range(self.queues, header.topic, header.queue_id, header.commit_offset)
        is_reset = info is not None and connection.audience is Audience.ADMINISTRATION and self.reset.reaches(info)
        if header.commit_offset < 0 or not is_reset:
            return self._commit(connection, header)
        self.reset.assign(header.consumer_group, header.topic, {header.queue_id: header.commit_offset})
        return response(header={})

    def _refusal(self, header: UpdateConsumerOffsetRequestHeader) -> Command | None:
        group = header.consumer_group
        if not self.groups.contains(group) and not self.groups.is_passing(group):
            remark = f"Group {header.consumer_group[:_SHOWN]} not exist!"
            return response(ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, remark, {})
        topic = self.topics.select(header.topic)
        if topic is None:
            return response(ResponseCode.TOPIC_NOT_EXIST, f"Topic {header.topic[:_SHOWN]} not exist!", {})
        queues = max(topic.read_queue_nums, topic.write_queue_nums)
        if not 0 <= header.queue_id < queues:
            remark = f"QueueId {header.queue_id} is illegal, topic {header.topic} has queues 0 to {queues - 1}"
            return response(ResponseCode.INVALID_PARAMETER, remark, {})
        return None

    def _commit(self, connection: Connection, header: UpdateConsumerOffsetRequestHeader) -> Command:
        kept = self.offsets.commit(
            header.consumer_group, header.topic, header.queue_id, header.commit_offset, connection.share
        )
        return response(remark=None if kept else _WAS_RESET, header={})


def _not_a_member(group: str, connection: Connection) -> BrokerResponseError:
    remark = (
        f"consumer group {group} has clients, and {connection.remote_address} is not a member: send a heartbeat that "
        "names the group, or add the address to adminWhiteList"
    )
    return BrokerResponseError(ResponseCode.NO_PERMISSION, remark)
