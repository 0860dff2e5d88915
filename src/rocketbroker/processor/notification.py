"""NOTIFICATION, POLLING_INFO and POP_ROLLBACK (NotificationProcessor, PollingInfoProcessor, AdminBrokerProcessor)."""

from collections.abc import Iterator
from dataclasses import dataclass

from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService, PopRequest
from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.offset.consumer_order_info_manager import ConsumerOrderInfoManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.pop_info import ALL_QUEUES, pop_retry_topics
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import HELD, Audience, Connection, Held
from rocketbroker.codec.remoting.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
)
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import Clock
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.pop_checks import PopChecks
from rocketbroker.processor.support.request_family import answers
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore


@dataclass(slots=True)
class NotificationRequests:
    """Requests about pops that pop nothing.

    Attributes:
        notifications: holds the requests that wait for a message; a message that wakes one still wakes a pop.
        polling: holds pops.
    """

    checks: PopChecks
    topics: TopicConfigManager
    queues: ConsumeQueueStore
    offsets: ConsumerOffsetManager
    orders: ConsumerOrderInfoManager
    notifications: PopLongPollingService
    polling: PopLongPollingService
    clock: Clock

    @answers(RequestCode.NOTIFICATION, NotificationRequestHeader, Audience.CLIENT)
    def notification(
        self,
        connection: Connection,
        command: RemotingCommand[NotificationRequestHeader],
        held: PopRequest | None = None,
    ) -> Command | Held:
        """Answer whether a pop would find a message, or wait until it would.

        Raises:
            BrokerResponseError: As for POP_MESSAGE.
        """
        header, now = command.header, self.clock.time_ms()
        topic = self.checks.topic(connection, header.topic, header.queue_id)
        self.checks.group(connection, header.consumer_group)
        if any(self._has_message(header, name, queue_id) for name, queue_id in self._queues(topic, header)):
            return response(header=NotificationResponseHeader(has_msg=True))
        if held is None:
            # Clients name their own time.
            header.born_time = now
        left_ms = header.born_time + header.poll_time - now
        if left_ms <= 0:
            return response(header=NotificationResponseHeader(has_msg=False))
        queue_id = max(header.queue_id, ALL_QUEUES)
        group = header.consumer_group
        request = PopRequest(connection, command, header.topic, group, queue_id, None, run=self.notification)
        try:
            self.notifications.suspend(request, left_ms)
        except BrokerResponseError:
            return response(header=NotificationResponseHeader(has_msg=False, polling_full=True))
        return HELD

    def _queues(self, topic: TopicConfig, header: NotificationRequestHeader) -> Iterator[tuple[str, int]]:
        """Yield the queues that a pop would read."""
        for name in pop_retry_topics(header.topic, header.consumer_group):
            retry = self.topics.select(name)
            if retry is not None and not header.order:
                yield from ((retry.topic_name, each) for each in range(retry.read_queue_nums))
        all_queues = range(topic.read_queue_nums)
        yield from ((header.topic, each) for each in (all_queues if header.queue_id < 0 else [header.queue_id]))

    def _has_message(self, header: NotificationRequestHeader, topic: str, queue_id: int) -> bool:
        group = header.consumer_group
        if header.order and self.orders.check_block(header.attempt_id, topic, group, queue_id, 0):
            return False
        offset = self.offsets.query(group, topic, queue_id)
        if offset < 0:
            offset = self.queues.min_offset_in_queue(topic, queue_id)
        return offset < self.queues.max_offset_in_queue(topic, queue_id)

    @answers(RequestCode.POLLING_INFO, PollingInfoRequestHeader, Audience.CLIENT)
    def polling_info(self, connection: Connection, command: RemotingCommand[PollingInfoRequestHeader]) -> Command:
        """Answer the number of pops that wait for messages.

        Raises:
            BrokerResponseError: As for POP_MESSAGE.
        """
        header = command.header
        self.checks.topic(connection, header.topic, header.queue_id)
        self.checks.group(connection, header.consumer_group)
        number = self.polling.polling_num(header.topic, header.consumer_group, max(header.queue_id, ALL_QUEUES))
        return response(header=PollingInfoResponseHeader(number))

    @answers(RequestCode.POP_ROLLBACK)
    def pop_rollback(self, _connection: Connection, _command: Command) -> Command:
        """Move open check points from RocksDB to the log: here all are in the log, and nothing is to be done."""
        return response(ResponseCode.SUCCESS)
