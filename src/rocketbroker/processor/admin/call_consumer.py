"""Passes a request on to a consumer and its answer back (AdminBrokerProcessor.callConsumer)."""

from collections import Counter

from rocketbroker.broker.consumer_manager import ConsumerManager
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.remoting_command import Command, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import BrokerResponseError, RemotingSendError, RemotingTimeoutError
from rocketbroker.common.shown_name import shown

# What Broker2Client gives a client to answer.
TIMEOUT_S = 10.0


class ConsumerCalls:
    """Asks consumers, each a few things at a time: what a consumer does not answer is kept for 10 s.

    Args:
        config: ``maxCallsPerConsumer``.
        consumers: the consumers.
    """

    def __init__(self, config: BrokerConfig, consumers: ConsumerManager) -> None:
        self._config = config
        self._consumers = consumers
        self._under_way: Counter[Connection] = Counter()

    async def call(self, group: str, client_id: str, command: Command) -> Command:
        """The client's answer to ``command``.

        Raises:
            BrokerResponseError: SYSTEM_ERROR, no such client is there or its connection was lost; SYSTEM_BUSY, it is
                asked too much already; CONSUME_MSG_TIMEOUT, it did not answer in 10 s.
        """
        channel = self._consumers.find_channel(group, client_id)
        who = f"consumer <{group}> <{shown(client_id)}>"
        if channel is None:
            raise BrokerResponseError(
                ResponseCode.SYSTEM_ERROR, f"The Consumer <{group}> <{shown(client_id)}> not online"
            )
        connection = channel.connection
        self._begin(connection, who)
        try:
            answer = await connection.invoke(command, TIMEOUT_S)
        except RemotingTimeoutError as error:
            raise BrokerResponseError(ResponseCode.CONSUME_MSG_TIMEOUT, f"{who} Timeout: {error}") from error
        except RemotingSendError as error:
            raise BrokerResponseError(ResponseCode.SYSTEM_ERROR, f"invoke {who} Exception: {error}") from error
        finally:
            self._end(connection)
        return response(answer.code, answer.remark, answer.header, bytes(answer.body))

    def _begin(self, connection: Connection, who: str) -> None:
        limit = self._config.max_calls_per_consumer
        if self._under_way[connection] >= limit:
            remark = (
                f"maxCallsPerConsumer: {who} has not answered {limit:,} requests yet; ask again later or raise "
                "maxCallsPerConsumer"
            )
            raise BrokerResponseError(ResponseCode.SYSTEM_BUSY, remark)
        self._under_way[connection] += 1

    def _end(self, connection: Connection) -> None:
        self._under_way[connection] -= 1
        if not self._under_way[connection]:
            del self._under_way[connection]
