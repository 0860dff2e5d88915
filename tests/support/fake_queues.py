"""Queues of brokers in memory, in place of the client that looks them up and pulls from them."""

from collections.abc import Iterable
from typing import Self

from rocketbroker.analytics.spark.broker_queues import BrokerQueues, QueueEnd
from rocketbroker.analytics.spark.offset_options import Subscription
from rocketbroker.codec.message.message_decoder import encode_record
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.headers.message import PullMessageRequestHeader, PullMessageResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, response, to_ext_fields
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import RemotingConnectError
from tests.support.commit_log_writer import V4_HOST

#: Most messages of an answer.
MOST = 5


class FakeQueues(BrokerQueues):
    """Queues with one message for each offset, stored in the millisecond of its number.

    Attributes:
        spans: first offset, and the one after the last, of each queue.
        missing: offsets without a message.
        slaves: queues that only a slave serves.
        failures: errors that the next requests for ends raise.
        asked: names of the lookups so far.
    """

    def __init__(self, spans: dict[MessageQueue, tuple[int, int]]) -> None:
        super().__init__("127.0.0.1:9")
        self.spans = spans
        self.missing: set[int] = set()
        self.slaves: set[MessageQueue] = set()
        self.failures: list[Exception] = []
        self.asked: list[str] = []

    async def __aenter__(self) -> Self:
        return self

    async def topics(self, subscription: Subscription) -> Iterable[str]:  # type: ignore[override]
        self.asked.append("topics")
        return subscription.topics or subscription.chosen({queue.topic for queue in self.spans})

    async def queues(self, topics: Iterable[str]) -> list[MessageQueue]:
        self.asked.append("queues")
        wanted = set(topics)
        return [queue for queue in self.spans if queue.topic in wanted]

    async def min_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, int]:
        lows = {queue: self._span(queue)[0] for queue in queues}
        self.asked += ["min_offsets"] if lows else []
        return lows

    async def max_offsets(self, queues: Iterable[MessageQueue]) -> dict[MessageQueue, QueueEnd]:
        self.asked.append("max_offsets")
        if self.failures:
            raise self.failures.pop()
        return {queue: QueueEnd(self._span(queue)[1], queue not in self.slaves) for queue in queues}

    async def offsets_at(self, times_ms: Iterable[tuple[MessageQueue, int]]) -> dict[tuple[MessageQueue, int], int]:
        return {(queue, time_ms): time_ms if any(self.spans[queue]) else 0 for queue, time_ms in times_ms}

    async def pull(self, queue: MessageQueue, header: PullMessageRequestHeader, broker_id: int) -> tuple[Command, int]:
        low, high = self._span(queue)
        at = header.queue_offset
        there = [number for number in range(at, min(at + min(header.max_msg_nums, MOST), high)) if at >= low]
        sent = [number for number in there if number not in self.missing]
        code = ResponseCode.SUCCESS if sent else ResponseCode.PULL_RETRY_IMMEDIATELY
        place = PullMessageResponseHeader(0, at + len(there), low, high)
        return response(code, header=to_ext_fields(place), body=b"".join(record(queue, each) for each in sent)), 0

    def _span(self, queue: MessageQueue) -> tuple[int, int]:
        if queue not in self.spans:
            raise RemotingConnectError(f"{queue.broker_name} is away")
        return self.spans[queue]


def record(
    queue: MessageQueue, offset: int, body: bytes = b"body", properties: bytes = b"", sys_flag: int = 0
) -> bytes:
    """Return the record of a message as a broker sends it."""
    topic = queue.topic.encode()
    return encode_record(
        queue.queue_id, 0, offset, offset * 100, sys_flag, 1, V4_HOST, offset, V4_HOST, 0, 0, body, topic, properties
    )
