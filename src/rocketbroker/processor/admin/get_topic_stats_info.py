"""GET_TOPIC_STATS_INFO (202): offsets of the queues of a topic (AdminBrokerProcessor.getTopicStatsInfo)."""

from rocketbroker.broker.broker_stats_manager import TOPIC_PUT_NUMS, BrokerStatsManager
from rocketbroker.broker.topic.topic_config_manager import TopicConfigManager
from rocketbroker.codec.message.message_ext import MessageQueue
from rocketbroker.codec.remoting.bodies.offset import TopicOffset, TopicStatsTable
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetTopicStatsInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.admin.existing_topic import existing_topic
from rocketbroker.processor.support.loop_share import LoopShare
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore
from rocketbroker.store.read.message_queries import MessageQueries


class GetTopicStatsInfoProcessor:
    """Answers offsets and last store time of each queue, those without messages included, and the rate of puts."""

    def __init__(
        self,
        broker_name: str,
        topics: TopicConfigManager,
        queues: ConsumeQueueStore,
        queries: MessageQueries,
        stats: BrokerStatsManager,
        encoder: AnswerEncoder,
    ) -> None:
        self._broker_name = broker_name
        self._topics = topics
        self._queues = queues
        self._queries = queries
        self._stats = stats
        self._encoder = encoder

    async def process(
        self, _connection: Connection, command: RemotingCommand[GetTopicStatsInfoRequestHeader]
    ) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: TOPIC_NOT_EXIST, INVALID_PARAMETER for an illegal name, or SYSTEM_ERROR if the topic
                has too many queues for one answer.
        """
        config = existing_topic(self._topics, command.header.topic)
        topic = config.topic_name
        queue_nums = max(config.read_queue_nums, config.write_queue_nums)
        self._encoder.check(queue_nums)
        table = {}
        share = LoopShare()
        for queue_id in range(queue_nums):
            table[MessageQueue(topic, self._broker_name, queue_id)] = self._queue(topic, queue_id)
            await share.turn()
        put = self._stats.view(TOPIC_PUT_NUMS, topic)
        body = TopicStatsTable(table, put.stats_minute.tps if put else 0.0)
        return response(body=await self._encoder.encode(body, queue_nums))

    def _queue(self, topic: str, queue_id: int) -> TopicOffset:
        end = self._queues.max_offset_in_queue(topic, queue_id)
        last = self._queries.message_store_timestamp(topic, queue_id, end - 1) if end > 0 else 0
        return TopicOffset(self._queues.min_offset_in_queue(topic, queue_id), end, last)
