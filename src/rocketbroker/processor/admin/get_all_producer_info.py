"""GET_ALL_PRODUCER_INFO (328): all producers by group (ProducerManager.getProducerTable)."""

from rocketbroker.broker.client_channel_info import ClientChannelInfo
from rocketbroker.broker.producer_manager import ProducerManager
from rocketbroker.codec.remoting.bodies.connection import ProducerInfo, ProducerTableInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.common.clock import Clock


class GetAllProducerInfoProcessor:
    """Answers who produces, from where, and when each was last heard of.

    ``remoteIP`` has a slash before it, as Java writes addresses.
    """

    def __init__(self, producers: ProducerManager, clock: Clock) -> None:
        self._producers = producers
        self._clock = clock

    def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request."""
        groups = self._producers.groups.items()
        table = {group: [self._info(channel) for channel in channels.values()] for group, channels in groups}
        return response(body=ProducerTableInfo(table).encode())

    def _info(self, channel: ClientChannelInfo) -> ProducerInfo:
        silent_s = self._clock.monotonic() - channel.last_update
        heard_ms = self._clock.time_ms() - round(silent_s * 1000)
        address = "/" + channel.connection.remote_address
        return ProducerInfo(channel.client_id, address, channel.language, channel.version, heard_ms)
