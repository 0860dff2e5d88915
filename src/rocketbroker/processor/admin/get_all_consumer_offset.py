"""GET_ALL_CONSUMER_OFFSET (43): the table of offsets, for slaves (AdminBrokerProcessor.getAllConsumerOffset)."""

from rocketbroker.broker.offset.consumer_offset_manager import ConsumerOffsetManager, OffsetTable
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.support.loop_share import LoopShare


class GetAllConsumerOffsetProcessor:
    """Answers the content of ``consumerOffset.json``, without resets; a slave adds the offsets committed at it."""

    def __init__(self, offsets: ConsumerOffsetManager, encoder: AnswerEncoder) -> None:
        self._encoder = encoder
        self._offsets = offsets

    async def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        offsets = self._offsets
        share = LoopShare()
        body = ConsumerOffsetSerializeWrapper(
            await _copy(offsets.table, share),
            offsets.data_version,
            await _copy(offsets.pull_table, share),
            offsets.group_topic_map(),
        )
        if (commits := offsets.returned_commits) is not None:
            body.slave_commit_table = await _copy(commits, share)
        return response(
            body=await self._encoder.encode(body, len(body.offset_table) + len(body.pull_offset_table or ()))
        )


async def _copy(table: OffsetTable, share: LoopShare) -> OffsetTable:
    copy = {}
    for key, queues in list(table.items()):
        copy[key] = dict(queues)
        await share.turn()
    return copy
