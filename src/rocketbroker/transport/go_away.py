"""GO_AWAY: the answer by which a server that stops sends its clients to others."""

from typing import Final

from rocketbroker.codec.remoting.handler import Connection, Route
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import BrokerResponseError

# MQVersion.Version.V5_3_1.ordinal(): later clients know GO_AWAY.
_LAST_WITHOUT_GO_AWAY: Final = 475
#: Requests about state that this server alone has: no other could serve them, and a client has no use for GO_AWAY.
SERVED_TO_THE_END: Final = frozenset(
    {
        RequestCode.UPDATE_CONSUMER_OFFSET,
        RequestCode.CONSUMER_SEND_MSG_BACK,
        RequestCode.END_TRANSACTION,
        RequestCode.ACK_MESSAGE,
        RequestCode.BATCH_ACK_MESSAGE,
        RequestCode.CHANGE_MESSAGE_INVISIBLETIME,
        RequestCode.UNLOCK_BATCH_MQ,
        RequestCode.UNREGISTER_CLIENT,
    }
)


def leaving_routes(routes: dict[int, Route]) -> dict[int, Route]:
    """Return the routes of a server that stops."""
    return {code: route if code in SERVED_TO_THE_END else route.guarded(_send_away) for code, route in routes.items()}


def _send_away(_connection: Connection, command: Command) -> None:
    """Reject a request of a client that knows GO_AWAY (NettyRemotingAbstract.processRequestCommand).

    A one-way request is served: its client would not learn that it was not.

    Raises:
        BrokerResponseError: GO_AWAY.
    """
    if command.version > _LAST_WITHOUT_GO_AWAY and not command.is_oneway:
        raise BrokerResponseError(ResponseCode.GO_AWAY, "please go away: this server is stopping")
