"""GET_CONSUME_STATS (208): progress of a group in its topics (AdminBrokerProcessor.getConsumeStats)."""

from rocketbroker.codec.remoting.bodies.offset import ConsumeStats
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import GetConsumeStatsRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.admin.consume_stats import ConsumeStatsCollector
from rocketbroker.processor.support.loop_share import LoopShare
from rocketbroker.processor.support.name_check import check_known_group, check_known_topic


class GetConsumeStatsProcessor:
    """Answers committed and pulled offsets with the ends of the queues, and the consume rate of the group.

    The topics are those of ``topicList``, else ``topic``, else those to which the group subscribes, or in which it has
    offsets if no client is there. ``topic`` is limited to those to which it subscribes. Missing topics are left out.
    """

    def __init__(self, collector: ConsumeStatsCollector) -> None:
        self._collector = collector

    async def process(self, _connection: Connection, command: RemotingCommand[GetConsumeStatsRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if the group or a topic is illegal; SYSTEM_ERROR if the topics have
                too many queues for one answer.
        """
        group = command.header.consumer_group
        check_known_group(group)
        stats = ConsumeStats()
        topics = list(dict.fromkeys(self._topics(command.header)))
        queues = self._collector.count_queues(topics)
        self._collector.check(queues)
        share = LoopShare()
        for topic in topics:
            table = await self._collector.offset_table(group, topic, share)
            await share.turn()
            if table is not None:
                stats.offset_table.update(table)
                stats.consume_tps += self._collector.consume_tps(group, topic)
        return response(body=await self._collector.encode(stats, queues))

    def _topics(self, header: GetConsumeStatsRequestHeader) -> list[str]:
        group = header.consumer_group
        named = [topic for topic in (header.topic_list or "").split(";") if topic.strip()]
        single = [header.topic] if header.topic and header.topic.strip() else []
        for topic in named or single:
            check_known_topic(topic)
        if named or single:
            return named or self._collector.subscribed(group, single)
        return self._collector.followed(group, self._collector.topics_of(group))
