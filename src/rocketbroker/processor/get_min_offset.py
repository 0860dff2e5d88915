"""GET_MIN_OFFSET (31): the start of a queue (AdminBrokerProcessor.getMinOffset)."""

from typing import Final

from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import GetMinOffsetRequestHeader, GetMinOffsetResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.support.name_check import check_queue
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

# Minimum of RocketMQ's BatchConsumeQueue before its first batch.
_NO_BATCH: Final = -1


class GetMinOffsetProcessor:
    """Answers the offset of the first message; without messages 0, or -1 if the queue holds batches.

    Args:
        queues: the queues.
        topic_configs: topics, which may have ``queue.type=BatchCQ``.
    """

    def __init__(self, queues: ConsumeQueueStore, topic_configs: TopicConfigManager) -> None:
        self._queues = queues
        self._topic_configs = topic_configs

    def process(self, _connection: Connection, command: RemotingCommand[GetMinOffsetRequestHeader]) -> Command:
        """Answer the request, with an empty remark as RocketMQ does.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the topic or the queue is illegal.
        """
        header = command.header
        check_queue(header.topic, header.queue_id)
        offset = self._queues.min_offset_in_queue(header.topic, header.queue_id)
        if not self._queues.max_offset_in_queue(header.topic, header.queue_id):
            topic = self._topic_configs.select(header.topic)
            if topic is not None and topic.is_batch_cq:
                offset = _NO_BATCH
        return response(remark="", header=GetMinOffsetResponseHeader(offset))
