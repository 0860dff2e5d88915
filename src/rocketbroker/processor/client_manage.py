"""Membership of clients in groups, and locks of their queues (ClientManageProcessor, ConsumerManageProcessor)."""

from dataclasses import dataclass
from typing import TypeVar

from rocketbroker.broker.client.consumer_group_info import SubscriptionLimit, is_tag_type
from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.broker.client.rebalance_lock_manager import RebalanceLockManager
from rocketbroker.broker.consumer_filter_manager import filter_of
from rocketbroker.broker.topic.subscription_group_manager import SubscriptionGroupManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.client import (
    CheckClientRequestBody,
    LockBatchRequestBody,
    LockBatchResponseBody,
    UnlockBatchRequestBody,
)
from rocketbroker.codec.remoting.handler import Audience, Connection
from rocketbroker.codec.remoting.headers.admin import (
    GetConsumerListByGroupRequestHeader,
    UnregisterClientRequestHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, MQFilterError, shown
from rocketbroker.processor.support.pull_subscriptions import not_supported
from rocketbroker.processor.support.request_checks import check_client_group, check_known_group, read_body
from rocketbroker.processor.support.request_family import answers

T = TypeVar("T", bound=LockBatchRequestBody)
# More than the names of a queue can take in a body, so that a longer body is rejected before it is read.
_MOST_BYTES_PER_QUEUE = 512


@dataclass(frozen=True, slots=True)
class ClientManageRequests:
    """Membership of clients in groups, and locks of their queues."""

    consumers: ConsumerManager
    producers: ProducerManager
    config: BrokerConfig
    locks: RebalanceLockManager
    topics: TopicConfigManager
    groups: SubscriptionGroupManager

    @answers(RequestCode.UNREGISTER_CLIENT, UnregisterClientRequestHeader, Audience.CLIENT)
    def unregister_client(
        self, connection: Connection, command: RemotingCommand[UnregisterClientRequestHeader]
    ) -> Command:
        """Drop the client from the producer group, the consumer group, or both. A group without the client is
        not an error.
        """
        header = command.header
        if header.producer_group:
            self.producers.unregister(header.producer_group, connection)
        if header.consumer_group:
            self.consumers.unregister(header.consumer_group, connection)
        return response(header={})

    @answers(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader, Audience.CLIENT)
    def get_consumer_list_by_group(
        self, _connection: Connection, command: RemotingCommand[GetConsumerListByGroupRequestHeader]
    ) -> Command:
        """Answer the ids of a group's clients, by which they share the queues. SYSTEM_ERROR for a group
        without clients, as in RocketMQ.
        """
        group = command.header.consumer_group
        info = self.consumers.group_info(group)
        if info is None:
            return response(ResponseCode.SYSTEM_ERROR, f"no consumer for this group, {shown(group)}", {})
        return response(header={}, body=info.encoded_client_ids())

    @answers(RequestCode.CHECK_CLIENT_CONFIG, audience=Audience.CLIENT)
    def check_client_config(self, _connection: Connection, command: Command) -> Command:
        """Accept tags and, with ``enablePropertyFilter``, valid SQL92 expressions, of a length allowed in
        heartbeats.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if filters on properties are off; SUBSCRIPTION_PARSE_FAILED if the
                expression is wrong or too long.
        """
        subscription = read_body(command.body, CheckClientRequestBody).subscription_data
        if subscription is None:
            return response()
        SubscriptionLimit(self.config).check_data(subscription)
        if is_tag_type(subscription.expression_type):
            return response()
        if not self.config.enable_property_filter:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, not_supported(subscription.expression_type))
        try:
            filter_of(subscription.expression_type, subscription.sub_string)
        except MQFilterError as error:
            raise BrokerResponseError(ResponseCode.SUBSCRIPTION_PARSE_FAILED, str(error)) from error
        return response()

    @answers(RequestCode.LOCK_BATCH_MQ, audience=Audience.CLIENT)
    def lock_batch_mq(self, connection: Connection, command: Command) -> Command:
        """Lock queues for a client of a group, or renews its locks; leaves out queues that this broker does not
        have.

        Apache RocketMQ locks for any client; a lock of one outside the group keeps the group from its queues
        for a minute. After a restart, clients renew their locks before their next heartbeat, so a known group
        without clients accepts any client.

        Raises:
            BrokerResponseError: SYSTEM_ERROR for a wrong body, INVALID_PARAMETER for an illegal group, a long clientId
                or too many queues, CONSUMER_NOT_ONLINE for a client that is not in the group, NO_PERMISSION for a group
                of the broker's own.
        """
        body = _read(self.config, command, LockBatchRequestBody)
        _check_client_id(self.config, body.client_id)
        check_known_group(body.consumer_group)
        check_client_group(body.consumer_group, connection)
        self._check_member(body.consumer_group, body.client_id)
        queues = [kept for queue in dict.fromkeys(body.mq_set) if (kept := self._existing(queue)) is not None]
        locked = self.locks.try_lock_batch(body.consumer_group, queues, body.client_id, connection.share)
        return response(body=LockBatchResponseBody(locked).encode())

    def _existing(self, queue: MessageQueue) -> MessageQueue | None:
        """Return the queue with the broker's own texts, which all locks share; ``None`` if there is none."""
        topic = self.topics.select(queue.topic)
        if topic is None or queue.broker_name != self.config.broker_name:
            return None
        if not 0 <= queue.queue_id < max(topic.read_queue_nums, topic.write_queue_nums):
            return None
        return MessageQueue(topic.topic_name, self.config.broker_name, queue.queue_id)

    def _check_member(self, group: str, client_id: str) -> None:
        if self.consumers.find_channel(group, client_id) is not None:
            return
        if self.consumers.group_info(group) is None and self.groups.contains(group):
            return
        remark = (
            f"The Consumer <{group}> <{shown(client_id)}> not online: only clients of the group may lock its "
            "queues; send a heartbeat that names the group first"
        )
        raise BrokerResponseError(ResponseCode.CONSUMER_NOT_ONLINE, remark)

    @answers(RequestCode.UNLOCK_BATCH_MQ, audience=Audience.CLIENT)
    def unlock_batch_mq(self, _connection: Connection, command: Command) -> Command:
        """Release the locks of a client. Releasing a lock that the client does not hold is not an error.

        Raises:
            BrokerResponseError: SYSTEM_ERROR for a wrong body, INVALID_PARAMETER for too many queues.
        """
        body = _read(self.config, command, UnlockBatchRequestBody)
        self.locks.unlock_batch(body.consumer_group, body.mq_set, body.client_id)
        return response()


def _read(config: BrokerConfig, command: Command, kind: type[T]) -> T:
    limit = config.max_queues_per_lock_request
    if len(command.body) > limit * _MOST_BYTES_PER_QUEUE:
        raise _too_many(f"a body of {len(command.body):,} bytes", limit)
    body = read_body(command.body, kind)
    if len(body.mq_set) > limit:
        raise _too_many(f"{len(body.mq_set):,} queues", limit)
    return body


def _check_client_id(config: BrokerConfig, client_id: str) -> None:
    limit = config.max_client_id_length
    if len(client_id) > limit:
        remark = (
            f"maxClientIdLength: {len(client_id):,} characters of a clientId exceed the limit of {limit:,}; shorten it "
            "or raise maxClientIdLength"
        )
        raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)


def _too_many(found: str, limit: int) -> BrokerResponseError:
    remark = (
        f"maxQueuesPerLockRequest: {found} exceeds the limit of {limit:,} queues; lock them by several requests or "
        "raise maxQueuesPerLockRequest"
    )
    return BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
