"""GET_TOPIC_STATS_INFO (202): where the queues of a topic are (AdminBrokerProcessor.getTopicStatsInfo)."""

from rocketbroker.broker.broker_stats_manager import TOPIC_PUT_NUMS, BrokerStatsManager
from rocketbroker.broker.topic_config_manager import TopicConfigManager
from rocketbroker.codec.remoting.bodies.message_queue import MessageQueue
from rocketbroker.codec.remoting.bodies.statistics import TopicOffset, TopicStatsTable
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.topic import GetTopicStatsInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.admin.existing_topic import existing_topic
from rocketbroker.processor.queue_reader import QueueReader


class GetTopicStatsInfoProcessor:
    """Answers offsets and last store time of each queue, those without messages included, and the rate of puts."""

    def __init__(
        self, broker_name: str, topics: TopicConfigManager, store: QueueReader, stats: BrokerStatsManager
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._store = store
        self._stats = stats

    def process(self, _connection: Connection, command: RemotingCommand[GetTopicStatsInfoRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, or INVALID_PARAMETER for an illegal name.
        """
        config = existing_topic(self._topics, command.header.topic)
        topic = config.topic_name
        queue_nums = max(config.read_queue_nums, config.write_queue_nums)
        table = {MessageQueue(topic, self._broker_name, i): self._queue(topic, i) for i in range(queue_nums)}
        put = self._stats.view(TOPIC_PUT_NUMS, topic)
        return response(body=TopicStatsTable(table, put.stats_minute.tps if put else 0.0).encode())

    def _queue(self, topic: str, queue_id: int) -> TopicOffset:
        end = self._store.max_offset_in_queue(topic, queue_id)
        last = self._store.message_store_timestamp(topic, queue_id, end - 1) if end > 0 else 0
        return TopicOffset(self._store.min_offset_in_queue(topic, queue_id), end, last)
