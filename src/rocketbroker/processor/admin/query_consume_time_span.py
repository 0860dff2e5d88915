"""QUERY_CONSUME_TIME_SPAN (303): time span of the messages in queues, and the lag of a group."""

import time

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import QueryConsumeTimeSpanBody, QueueTimeSpan
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import QueryConsumeTimeSpanRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.common.clock import Clock
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.admin.existing_topic import existing_topic
from rocketbroker.processor.support.loop_share import LoopShare
from rocketbroker.processor.support.name_check import check_known_group
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries


class QueryConsumeTimeSpanProcessor:
    """Answers times for each queue; ``delayTime`` is the age of the group's next message, 0 without one."""

    def __init__(
        self,
        broker_name: str,
        topics: TopicConfigManager,
        offsets: ConsumerOffsetManager,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        clock: Clock,
        encoder: AnswerEncoder,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._offsets = offsets
        self._queues = queues
        self._queries = queries
        self._clock = clock
        self._encoder = encoder

    async def process(
        self, _connection: Connection, command: RemotingCommand[QueryConsumeTimeSpanRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, INVALID_PARAMETER for an illegal name, or SYSTEM_ERROR if the topic
                has too many queues for one answer.
        """
        header = command.header
        check_known_group(header.group)
        config = existing_topic(self._topics, header.topic)
        self._encoder.check(config.write_queue_nums)
        spans = []
        share = LoopShare()
        for queue_id in range(config.write_queue_nums):
            spans.append(self._span(header.group, header.topic, queue_id))
            await share.turn()
        return response(body=await self._encoder.encode(QueryConsumeTimeSpanBody(spans), len(spans)))

    def _span(self, group: str, topic: str, queue_id: int) -> QueueTimeSpan:
        queues, queries = self._queues, self._queries
        first = queries.earliest_message_time(topic, queue_id)
        end = queues.max_offset_in_queue(topic, queue_id)
        last = queries.message_store_timestamp(topic, queue_id, end - 1)
        offset = max(self._offsets.query(group, topic, queue_id), queues.min_offset_in_queue(topic, queue_id))
        consumed = queries.message_store_timestamp(topic, queue_id, offset - 1) if offset > 0 else first
        waits = self._clock.time_ms() - queries.message_store_timestamp(topic, queue_id, offset) if offset < end else 0
        queue = MessageQueue(topic, self._broker_name, queue_id)
        return QueueTimeSpan(queue, first, last, consumed, waits, _text(first), _text(last), _text(consumed))


def _text(time_ms: int) -> str:
    """Format a local time as ``2026-11-21#10:15:40:019`` (UtilAll.timeMillisToHumanString)."""
    seconds, rest = divmod(time_ms, 1000)
    return f"{time.strftime('%Y-%m-%d#%H:%M:%S', time.localtime(seconds))}:{rest:03d}"
