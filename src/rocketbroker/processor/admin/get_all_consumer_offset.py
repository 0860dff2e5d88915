"""GET_ALL_CONSUMER_OFFSET (43): the table of offsets, for slaves (AdminBrokerProcessor.getAllConsumerOffset)."""

from rocketbroker.broker.consumer_offset_manager import ConsumerOffsetManager
from rocketbroker.codec.remoting.bodies.offset import ConsumerOffsetSerializeWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response


class GetAllConsumerOffsetProcessor:
    """Answers what ``consumerOffset.json`` holds."""

    def __init__(self, offsets: ConsumerOffsetManager) -> None:
        self._offsets = offsets

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        offsets = self._offsets
        body = ConsumerOffsetSerializeWrapper(
            offsets.table, offsets.data_version, offsets.pull_table, offsets.group_topic_map()
        )
        return response(body=body.encode())
