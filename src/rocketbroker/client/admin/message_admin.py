"""Reading of messages by administrators, outside any consumer group (DefaultMQAdminExt, DefaultMQPullConsumer).

A pull names the built-in group TOOLS_CONSUMER, carries its subscription, commits no offset, and is preceded by no
heartbeat: nothing that a consumer group knows changes.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from typing import Final, NamedTuple

from rocketbroker.client.admin.admin_connection import AdminConnection
from rocketbroker.client.core.errors import BrokerNotFoundError, ClientError, SystemBusyError
from rocketbroker.client.core.pull_result import MessageSelector, PullResult, PullStatus, pull_result, subscription_data
from rocketbroker.client.core.requests import answer_header, client_request
from rocketbroker.codec.message.message_ext import MessageExt, MessageQueue
from rocketbroker.codec.remoting.bodies.route import MASTER_ID
from rocketbroker.codec.remoting.headers.message import (
    FLAG_SUBSCRIPTION,
    FLAG_SUSPEND,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    PullMessageRequestHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
)
from rocketbroker.codec.remoting.request_code import RequestCode

#: Group of pulls by tools, which every broker knows (MixAll.TOOLS_CONSUMER_GROUP).
TOOLS_CONSUMER: Final = "TOOLS_CONSUMER"
#: Selects every message.
ALL_MESSAGES: Final = MessageSelector.by_tag("*")
# Messages of one pull; a broker has a limit of its own.
_MOST: Final = 32
# Pulls of a busy broker before its refusal is raised, and the pause before each.
_BUSY_TIMES: Final = 5
_BUSY_PAUSE_S: Final = 0.2


class ReadableQueue(NamedTuple):
    """A queue, and the address of the broker that it is read from."""

    queue: MessageQueue
    address: str


class Gap(NamedTuple):
    """Offsets of a queue that had messages and have none now: from ``begin`` to before ``end``."""

    begin: int
    end: int


class MessageAdmin(AdminConnection):
    """Calls that read messages of queues."""

    async def readable_queues(self, topic: str, route_topic: str | None = None) -> list[ReadableQueue]:
        """Return the queues that a topic can be read from, by broker and id (fetchSubscribeMessageQueues).

        Args:
            topic: the topic.
            route_topic: topic whose route to use, for an LMQ.

        Raises:
            TopicRouteError: unknown topic.
            ClientError: no queue of it can be read; the text says why.
        """
        route = await self.examine_topic_route_info(route_topic or topic)
        addresses = {
            data.broker_name: data.broker_addrs[
                min(data.broker_addrs, key=lambda number: (number != MASTER_ID, number))
            ]
            for data in route.broker_datas
            if data.broker_addrs
        }
        queues = route.subscribe_queues(topic)
        if not queues:
            raise ClientError(
                f"no queue of topic {topic} can be read; permit it: mqadmin updateTopicPerm -t {topic} -p 6"
            )
        return [
            ReadableQueue(queue, addresses[queue.broker_name]) for queue in queues if queue.broker_name in addresses
        ]

    async def readable_queue(
        self, topic: str, broker_name: str, queue_id: int, route_topic: str | None = None
    ) -> ReadableQueue:
        """Return one queue of a topic.

        Raises:
            TopicRouteError: unknown topic.
            BrokerNotFoundError: no broker of the topic has the name, or it has no such queue; the text names the known.
        """
        queues = await self.readable_queues(topic, route_topic)
        known = [each for each in queues if each.queue.broker_name == broker_name]
        if not known:
            names = ", ".join(sorted({each.queue.broker_name for each in queues}))
            raise BrokerNotFoundError(f"broker {broker_name!r} has no queue of topic {topic}; there are {names}")
        for each in known:
            if each.queue.queue_id == queue_id:
                return each
        raise BrokerNotFoundError(
            f"broker {broker_name} has no queue {queue_id} of topic {topic}; it has 0 to {known[-1].queue.queue_id}"
        )

    async def queue_max_offset(self, queue: ReadableQueue) -> int:
        """Return the offset after the last message of a queue."""
        header = GetMaxOffsetRequestHeader(queue.queue.topic, queue.queue.queue_id)
        answer = await self._ask(queue.address, RequestCode.GET_MAX_OFFSET, header)
        return answer_header(answer, GetMaxOffsetResponseHeader).offset

    async def queue_min_offset(self, queue: ReadableQueue) -> int:
        """Return the offset of the first message of a queue that is still there."""
        header = GetMinOffsetRequestHeader(queue.queue.topic, queue.queue.queue_id)
        answer = await self._ask(queue.address, RequestCode.GET_MIN_OFFSET, header)
        return answer_header(answer, GetMinOffsetResponseHeader).offset

    async def queue_search_offset(self, queue: ReadableQueue, time_ms: int) -> int:
        """Return the offset of the first message of a queue stored at a time or after it.

        Brokers answer a time after the last message with the offset of that message, or with the end of the queue. So
        the messages from the answer on are not all stored after the time; compare their store timestamps.
        """
        header = SearchOffsetRequestHeader(queue.queue.topic, queue.queue.queue_id, time_ms)
        answer = await self._ask(queue.address, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
        return answer_header(answer, SearchOffsetResponseHeader).offset

    async def pull_messages(
        self,
        queue: ReadableQueue,
        offset: int,
        max_nums: int = _MOST,
        *,
        selector: MessageSelector = ALL_MESSAGES,
        suspend_s: float = 0.0,
    ) -> PullResult:
        """Return messages of a queue from an offset on, without a consumer group.

        Args:
            queue: the queue.
            offset: queue offset of the first message wanted.
            max_nums: at most so many messages; brokers have a limit of their own.
            selector: the messages wanted.
            suspend_s: seconds for which the broker holds the request while there is no message.

        Raises:
            BrokerResponseError: the broker refused, such as a filter on properties without ``enablePropertyFilter``.
        """
        subscription = subscription_data(queue.queue.topic, selector, 0)
        header = PullMessageRequestHeader(
            consumer_group=TOOLS_CONSUMER,
            topic=queue.queue.topic,
            queue_id=queue.queue.queue_id,
            queue_offset=offset,
            max_msg_nums=max_nums,
            sys_flag=FLAG_SUBSCRIPTION | (FLAG_SUSPEND if suspend_s > 0 else 0),
            commit_offset=0,
            suspend_timeout_millis=round(suspend_s * 1000),
            sub_version=subscription.sub_version,
            subscription=subscription.sub_string,
            expression_type=subscription.expression_type,
        )
        self._used()
        command = client_request(RequestCode.PULL_MESSAGE, header)
        answer = await self._remoting.invoke(queue.address, command, self._timeout_s + suspend_s)
        return pull_result(answer, frozenset(subscription.tags_set), offset)

    async def read_messages(
        self,
        queue: ReadableQueue,
        begin: int,
        end: int,
        *,
        selector: MessageSelector = ALL_MESSAGES,
        on_gap: Callable[[Gap], object] | None = None,
    ) -> AsyncGenerator[PullResult, None]:
        """Yield the pulls of a queue from offset ``begin`` to before ``end``, messages beyond it left out.

        A damaged message ends the pull before it; ``damage`` says so, and the next pull is behind it. A busy broker is
        asked again.

        Args:
            queue: the queue.
            begin: first offset.
            end: offset to stop before.
            selector: the messages wanted.
            on_gap: called with offsets that the queue no longer has: their messages expired, or the topic was deleted
                and created again with fewer.
        """
        on_gap = on_gap or (lambda _: None)
        offset, busy = begin, 0
        while offset < end:
            most = min(_MOST, end - offset)
            try:
                result = await self.pull_messages(queue, offset, most, selector=selector)
            except SystemBusyError:
                busy += 1
                if busy > _BUSY_TIMES:
                    raise
                await asyncio.sleep(_BUSY_PAUSE_S * busy)
                continue
            busy = 0
            following = result.next_begin_offset
            if result.damage and following <= offset:
                following = offset + 1
            messages = [message for message in result.messages if message.queue_offset < end]
            yield PullResult(
                result.pull_status,
                following,
                result.min_offset,
                result.max_offset,
                messages,
                result.suggest_which_broker_id,
                result.damage,
            )
            if result.pull_status is PullStatus.NO_NEW_MSG or following <= offset:
                on_gap(Gap(offset, end))
                return
            if result.pull_status is PullStatus.OFFSET_ILLEGAL:
                on_gap(Gap(offset, min(following, end)))
            offset = following

    async def message_at(self, queue: ReadableQueue, offset: int) -> MessageExt | None:
        """Return the message at an offset of a queue, None if there is none."""
        result = await self.pull_messages(queue, offset, 1)
        return next((message for message in result.messages if message.queue_offset == offset), None)
