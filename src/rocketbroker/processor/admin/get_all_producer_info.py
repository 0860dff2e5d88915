"""GET_ALL_PRODUCER_INFO (328): all producers by group (ProducerManager.getProducerTable)."""

from rocketbroker.broker.client.client_channel_info import ClientChannelInfo
from rocketbroker.broker.client.producer_manager import ProducerManager
from rocketbroker.codec.remoting.bodies.client import ProducerInfo, ProducerTableInfo
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.common.clock import Clock
from rocketbroker.processor.admin.answer_encoder import AnswerEncoder
from rocketbroker.processor.support.loop_share import LoopShare


class GetAllProducerInfoProcessor:
    """Answers each producer with its address and the time of its last heartbeat.

    ``remoteIP`` begins with a slash, as Java writes addresses.
    """

    def __init__(self, producers: ProducerManager, clock: Clock, encoder: AnswerEncoder) -> None:
        self._encoder = encoder
        self._producers = producers
        self._clock = clock

    async def process(self, _connection: Connection, _command: Command) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if there are too many producers for one answer.
        """
        groups = self._producers.groups
        count = sum(map(len, groups.values()))
        self._encoder.check(count)
        share = LoopShare()
        table = {}
        for group, channels in list(groups.items()):
            table[group] = [self._info(channel) for channel in list(channels.values())]
            await share.turn()
        return response(body=await self._encoder.encode(ProducerTableInfo(table), count))

    def _info(self, channel: ClientChannelInfo) -> ProducerInfo:
        silent_s = self._clock.monotonic() - channel.last_update
        heard_ms = self._clock.time_ms() - round(silent_s * 1000)
        address = "/" + channel.connection.remote_address
        return ProducerInfo(channel.client_id, address, channel.language, channel.version, heard_ms)
