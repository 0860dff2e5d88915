"""NOTIFICATION, POLLING_INFO and POP_ROLLBACK (NotificationProcessor, PollingInfoProcessor, AdminBrokerProcessor)."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from time import perf_counter

from rocketbroker.broker.longpolling.pop_long_polling_service import PopLongPollingService, PopRequest
from rocketbroker.broker.longpolling.pull_request import Wanted
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
from rocketbroker.common.errors import BrokerResponseError, StoreError
from rocketbroker.processor.support.pop_checks import PopChecks
from rocketbroker.processor.support.pull_subscriptions import PullSubscriptions, filter_of_queues
from rocketbroker.processor.support.request_family import answers
from rocketbroker.store.read.checked_reader import FILTER_TURN_S
from rocketbroker.store.read.get_message import GetMessageRequest, GetMessageResult
from rocketbroker.store.read.message_fetcher import MessageFetcher


@dataclass(slots=True)
class NotificationRequests:
    """Requests about pops that pop nothing.

    Attributes:
        notifications: holds the requests that wait for a message; a message that wakes one still wakes a pop.
        polling: holds pops.
    """

    checks: PopChecks
    topics: TopicConfigManager
    subscriptions: PullSubscriptions
    fetcher: MessageFetcher
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
        """Answer whether a pop would find a message that its subscription selects, or wait until it would.

        Raises:
            BrokerResponseError: As for POP_MESSAGE.
        """
        header, now = command.header, self.clock.time_ms()
        topic = self.checks.topic(connection, header.topic, header.queue_id)
        self.checks.group(connection, header.consumer_group)
        wanted: Wanted = (None, None)
        if header.exp_type and header.exp:
            wanted = self.subscriptions.carried(header.exp_type, header.exp)
        # One turn of the event loop for all queues together: each of them may have messages that nobody wants.
        end = perf_counter() + FILTER_TURN_S
        if any(self._has_message(header, wanted, *queue, end) for queue in self._queues(topic, header)):
            return response(header=NotificationResponseHeader(has_msg=True))
        if held is None:
            # Clients name their own time.
            header.born_time = now
        left_ms = header.born_time + header.poll_time - now
        if left_ms <= 0:
            return response(header=NotificationResponseHeader(has_msg=False))
        queue_ids = range(topic.read_queue_nums) if header.queue_id < 0 else [header.queue_id]
        position = partial(self._position, header.consumer_group, header.topic)
        tag_codes, message_filter = wanted
        request = PopRequest(
            connection,
            command,
            header.topic,
            header.consumer_group,
            max(header.queue_id, ALL_QUEUES),
            tag_codes,
            filter_of_queues(self.fetcher, header.topic, queue_ids, position, message_filter),
            filtered_queues=len(queue_ids),
            run=self.notification,
        )
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

    def _has_message(
        self, header: NotificationRequestHeader, wanted: Wanted, topic: str, queue_id: int, end: float
    ) -> bool:
        """Return true if a pop of the queue would find a message, or pass messages that it does not want.

        Messages on disk and those that are left at time ``end`` are not examined: a pop gets past them.

        Raises:
            BrokerResponseError: SYSTEM_ERROR; the disk cannot be read.
        """
        group, (tag_codes, message_filter) = header.consumer_group, wanted
        if header.order and self.orders.check_block(header.attempt_id, topic, group, queue_id, 0):
            return False
        offset = self._position(group, topic, queue_id)
        if offset >= self.fetcher.queue_end(topic, queue_id):
            return False
        if (tag_codes is None and message_filter is None) or perf_counter() >= end:
            return True
        matches = None if tag_codes is None else tag_codes.__contains__
        request = GetMessageRequest(topic, queue_id, offset, 1, 1, matches, message_filter, scans_ahead=True)
        try:
            result = self.fetcher.fetch(request)
        except StoreError as error:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, str(error)) from error
        if not isinstance(result, GetMessageResult) or result.message_count:
            return True
        return result.next_begin_offset < result.max_offset

    def _position(self, group: str, topic: str, queue_id: int) -> int:
        offset = self.offsets.query(group, topic, queue_id)
        return offset if offset >= 0 else self.fetcher.queue_range(topic, queue_id)[0]

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
