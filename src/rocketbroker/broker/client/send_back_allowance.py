"""Bytes of messages that consumers may send back.

CONSUMER_SEND_MSG_BACK names a message that the broker then stores again, so that a few bytes may cost megabytes of the
log. A consumer sends back what it received, once: these bytes are free. A rate limits all others, such as messages
received before the consumer or the broker restarted.
"""

from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.common.address_shares import ByteBudget
from rocketbroker.common.clock import Clock
from rocketbroker.common.config import BrokerConfig


class SendBackAllowance:
    """Bytes of messages that each connection received and has not sent back. All methods are for the event loop.

    Args:
        config: ``consumerSendMsgBackBytesPerSecond``.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._others = ByteBudget(clock)
        self._given: dict[Connection, int] = {}

    def give(self, connection: Connection, size: int) -> None:
        """Count messages in the answer to a pull."""
        given = self._given.get(connection)
        # ``on_close`` takes out a connection that is there.
        if given is not None:
            self._given[connection] = given + size
        elif connection.is_open:
            self._given[connection] = size

    def take(self, connection: Connection, size: int) -> bool:
        """Charge a message that is sent back; return false if the connection received less and the rate is used up."""
        given = self._given.get(connection, 0)
        if given >= size:
            self._given[connection] = given - size
            return True
        return self._others.take(size, self._config.consumer_send_msg_back_bytes_per_second)

    def on_close(self, connection: Connection) -> None:
        """Forget a closed connection."""
        self._given.pop(connection, None)
