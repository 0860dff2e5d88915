"""GET_ALL_MESSAGE_REQUEST_MODE (402): modes of groups, for slaves (AdminBrokerProcessor.getAllMessageRequestMode)."""

from rocketbroker.broker.slave.slave_synchronize import CopiedTable
from rocketbroker.codec.remoting.bodies.offset import MessageRequestModeSerializeWrapper
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response


class GetAllMessageRequestModeProcessor:
    """Answers an empty table, since all groups pull; a slave answers its master's."""

    def __init__(self, modes: CopiedTable[MessageRequestModeSerializeWrapper]) -> None:
        self._modes = modes

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        return response(body=self._modes.content.encode())
