"""QUERY_CORRECTION_OFFSET (308): offsets of the slowest group of a topic (AdminBrokerProcessor)."""

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.codec.remoting.bodies.offset import QueryCorrectionOffsetBody
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.message import QueryCorrectionOffsetHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.processor.support.loop_share import LoopShare
from rocketbroker.processor.support.name_check import check_known_group, check_known_topic
from rocketbroker.store.queue.consume_queue_store import ConsumeQueueStore

_NO_CORRECTION = 2**63 - 1


class QueryCorrectionOffsetProcessor:
    """Answers, for each queue, the lowest offset of any group, or 2^63 - 1 if the offset of ``compareGroup`` is lower.

    Groups in ``filterGroups`` do not count, nor offsets before the first message. RocketMQ deletes the offsets of the
    groups in ``filterGroups``; here the query changes nothing.
    """

    def __init__(self, offsets: ConsumerOffsetManager, queues: ConsumeQueueStore) -> None:
        self._offsets = offsets
        self._queues = queues

    async def process(self, _connection: Connection, command: RemotingCommand[QueryCorrectionOffsetHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if a group or the topic is illegal.
        """
        header = command.header
        check_known_topic(header.topic)
        check_known_group(header.compare_group)
        least = await self._least(header.topic, {name.strip() for name in (header.filter_groups or "").split(",")})
        for queue_id, offset in self._offsets.offsets_of(header.compare_group, header.topic).items():
            if queue_id in least and least[queue_id] > offset:
                least[queue_id] = _NO_CORRECTION
        return response(body=QueryCorrectionOffsetBody(least).encode())

    async def _least(self, topic: str, left_out: set[str]) -> dict[int, int]:
        least: dict[int, int] = {}
        share = LoopShare()
        for group in self._offsets.groups_of(topic) - left_out:
            for queue_id, offset in self._offsets.offsets_of(group, topic).items():
                if offset >= self._queues.min_offset_in_queue(topic, queue_id):
                    least[queue_id] = min(offset, least.get(queue_id, offset))
                await share.turn()
        return dict(sorted(least.items()))
