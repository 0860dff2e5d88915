"""EXCHANGE_BROKER_HA_INFO (906): addresses of a master (AdminBrokerProcessor.updateBrokerHaInfo).

A master sends them to its slaves before it registers, and waits until they have compared their logs with its own. A
slave may ask for them.
"""

from collections.abc import Awaitable, Callable

from rocketbroker.broker.registration.namesrv_link import Master
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.admin import ExchangeHAInfoRequestHeader, ExchangeHAInfoResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, RemotingCommand, response
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError


class ExchangeBrokerHaInfoProcessor:
    """Answers the own addresses at a master; takes those of the master at a slave.

    Args:
        own_info: returns the addresses of this master; ``None`` at a slave.
        hand_over: called at a slave with its master; returns once the slave has handed over.
    """

    def __init__(
        self,
        own_info: Callable[[], ExchangeHAInfoResponseHeader | None],
        hand_over: Callable[[Master], Awaitable[None]],
    ) -> None:
        self._own_info = own_info
        self._hand_over = hand_over

    async def process(self, _connection: Connection, command: RemotingCommand[ExchangeHAInfoRequestHeader]) -> Command:
        """Answer the request.

        Raises:
            BrokerResponseError: INVALID_PARAMETER if this broker is a master itself; otherwise as ``hand_over``.
        """
        header, own = command.header, self._own_info()
        if header.master_ha_address is None:
            return response(header=own)
        if own is not None:
            remark = f"this broker is a master itself, and follows no master at {header.master_address}"
            raise BrokerResponseError(ResponseCode.INVALID_PARAMETER, remark)
        await self._hand_over(Master(header.master_address or "", header.master_ha_address))
        return response()
