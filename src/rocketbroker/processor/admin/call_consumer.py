"""Requests passed on to a consumer, and its answers passed back (AdminBrokerProcessor.callConsumer)."""

from collections import Counter

from rocketbroker.broker.client.consumer_manager import ConsumerManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, RemotingSendError, RemotingTimeoutError, shown

# Time for a client to answer, as in Broker2Client.
TIMEOUT_S = 10.0


class ConsumerCalls:
    """Asks consumers, each with a few requests at a time: an unanswered request is kept for 10 s.

    Args:
        config: ``maxCallsPerConsumer``.
        consumers: the consumers.
    """

    def __init__(self, config: BrokerConfig, consumers: ConsumerManager) -> None:
        self._config = config
        self._consumers = consumers
        self._under_way: Counter[Connection] = Counter()

    def check(self, group: str, client_id: str) -> Connection:
        """Return the connection of a client that can be asked; call this before anything is read for it.

        Raises:
            BrokerResponseError: SYSTEM_ERROR if the client is not connected; SYSTEM_BUSY if it has too many open
                requests.
        """
        channel = self._consumers.find_channel(group, client_id)
        who = f"<{group}> <{shown(client_id)}>"
        if channel is None:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"The Consumer {who} not online")
        if channel.connection.is_behind:
            remark = f"consumer {who} reads its connection too slowly (writeBufferHighWaterMark); ask again later"
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
        limit = self._config.max_calls_per_consumer
        if self._under_way[channel.connection] >= limit:
            remark = (
                f"maxCallsPerConsumer: consumer {who} has not answered {limit:,} requests yet; ask again later or "
                "raise maxCallsPerConsumer"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
        return channel.connection

    async def call(self, group: str, client_id: str, command: Command) -> Command:
        """Return the client's answer to ``command``.

        Raises:
            BrokerResponseError: See ``check``; SYSTEM_ERROR if its connection was lost; CONSUME_MSG_TIMEOUT if it did
                not answer in 10 s.
        """
        connection = self.check(group, client_id)
        who = f"consumer <{group}> <{shown(client_id)}>"
        self._under_way[connection] += 1
        try:
            answer = await connection.invoke(command, TIMEOUT_S)
        except RemotingTimeoutError as error:
            raise BrokerResponseError(ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: {error}") from error
        except RemotingSendError as error:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {error}") from error
        finally:
            self._end(connection)
        return response(answer.code, answer.remark, answer.header, bytes(answer.body))

    def _end(self, connection: Connection) -> None:
        self._under_way[connection] -= 1
        if not self._under_way[connection]:
            del self._under_way[connection]
