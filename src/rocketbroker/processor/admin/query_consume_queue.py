"""QUERY_CONSUME_QUEUE (321): entries of a queue as they are on disk (AdminBrokerProcessor.queryConsumeQueue)."""

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.broker.consumer_filter_manager import ConsumerFilterManager
from rocketbroker.codec.remoting import fastjson
from rocketbroker.codec.remoting.bodies.offset import ConsumeQueueData, QueryConsumeQueueResponseBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import QueryConsumeQueueRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError
from rocketbroker.processor.support.name_check import check_known_group, check_queue
from rocketbroker.store.queue.consume_queue_interface import ConsumeQueueInterface
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

# About 1 MiB of JSON.
MAX_COUNT = 10_000


class QueryConsumeQueueProcessor:
    """Answers entries, the ends of the queue and, if the request names a group, the group's subscription."""

    def __init__(
        self, consumers: ConsumerManager, consumer_filters: ConsumerFilterManager, queues: ConsumeQueueStore
    ) -> None:
        self._consumers = consumers
        self._consumer_filters = consumer_filters
        self._queues = queues

    def process(self, _connection: Connection, command: RemotingCommand[QueryConsumeQueueRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if a field is illegal; SYSTEM_ERROR if there is no such queue, or it
                has no offset ``index``.
        """
        header = command.header
        queue = self._queue(header)
        body = QueryConsumeQueueResponseBody(
            entries(queue, header.index, header.count), queue.max_offset, queue.min_offset
        )
        if header.consumer_group is not None:
            self._add_subscription(body, header.consumer_group, header.topic)
        return response(body=body.encode())

    def _queue(self, header: QueryConsumeQueueRequestHeader) -> ConsumeQueueInterface:
        check_queue(header.topic, header.queue_id)
        if not 0 <= header.count <= MAX_COUNT:
            remark = f"the count {header.count} is illegal; use 0 to {MAX_COUNT}"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        name = f"{header.queue_id}@{header.topic}"
        queue = self._queues.find(header.topic, header.queue_id)
        if queue is None:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"{name} is not exist!")
        if not queue.min_offset <= header.index <= queue.max_offset:
            remark = f"Index {header.index} of {name} is not exist! Use {queue.min_offset} to {queue.max_offset}"
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, remark)
        return queue

    def _add_subscription(self, body: QueryConsumeQueueResponseBody, group: str, topic: str) -> None:
        if group:  # consoles send an empty name if the user names no group
            check_known_group(group)
        found = self._consumers.find_subscription_data(group, topic)
        if found is None:
            body.filter_data = f"{group}@{topic} is not online!"
        else:
            body.subscription_data = found.data
            registered = self._consumer_filters.get(topic, group)
            data = None if registered is None else registered.data
            body.filter_data = fastjson.dumps(data, indent="\t").decode()


def entries(queue: ConsumeQueueInterface, index: int, count: int) -> list[ConsumeQueueData]:
    """Return up to ``count`` entries from ``index`` on, across files; a batch has one entry."""
    if queue.holds_batches:
        return [ConsumeQueueData(*entry) for entry in queue.entries(index, count)]
    found: list[ConsumeQueueData] = []
    while len(found) < count:
        part = [ConsumeQueueData(*entry) for entry in queue.entries(index + len(found), count - len(found))]
        if not part:
            break
        found += part
    return found
