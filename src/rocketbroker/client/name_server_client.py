"""Asks the name servers (the part of NettyRemotingClient and MQClientAPIImpl that talks to them)."""

from collections.abc import Callable

from rocketbroker.client.errors import NameServerError, TopicRouteError
from rocketbroker.client.requests import check_success, client_request
from rocketbroker.codec.remoting.bodies.route import TopicRouteData
from rocketbroker.codec.remoting.headers.namesrv import GetRouteInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.errors import ConfigError, RemotingConnectError, RemotingError
from rocketbroker.transport.remoting_client import RemotingClient, split_address


def split_addresses(namesrv_addr: str) -> tuple[str, ...]:
    """Return the addresses of ``host:port;host:port``.

    Raises:
        ConfigError: no address, or an address without a port.
    """
    addresses = tuple(part.strip() for part in namesrv_addr.split(";") if part.strip())
    if not addresses:
        raise ConfigError("no name server address given; use host:port, or several joined by ';'")
    for address in addresses:
        try:
            split_address(address)
        except RemotingConnectError as error:
            raise ConfigError(f"name server address: {error}") from None
    return addresses


class NameServerClient:
    """Sends a request to the name server that answered last, and to the next ones when it does not answer.

    Args:
        remoting: carries the requests.
        addresses: ``host:port`` of each name server; at least one.
        timeout_s: how long one name server may take.
    """

    def __init__(self, remoting: RemotingClient, addresses: tuple[str, ...], timeout_s: float = 3.0) -> None:
        self._remoting = remoting
        self._timeout_s = timeout_s
        self._chosen = 0
        self.addresses = addresses

    async def invoke(self, command: Command) -> Command:
        """Return the answer of the first name server that gives one, whatever its code.

        Raises:
            NameServerError: none answered, or only brokers did; the text has the reason of each.
        """
        reasons = []
        for _ in self.addresses:
            address = self.addresses[self._chosen]
            try:
                answer = await self._remoting.invoke(address, command, self._timeout_s)
            except RemotingError as error:
                reasons.append(str(error))
            else:
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    return answer
                reasons.append(f"{address} is a broker; give the address of a name server, by default port 9876")
            self._chosen = (self._chosen + 1) % len(self.addresses)
        raise NameServerError(f"no name server answers: {'; '.join(reasons)}")

    async def invoke_all(self, command: Callable[[], Command]) -> None:
        """Send a request to each name server; each must agree.

        Raises:
            RemotingError: one does not answer.
            BrokerResponseError: one refuses.
        """
        for address in self.addresses:
            check_success(await self._remoting.invoke(address, command(), self._timeout_s))

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic.

        Raises:
            TopicRouteError: the name server does not know the topic.
            NameServerError: none answered.
            BrokerResponseError: an answer other than these.
        """
        answer = await self.invoke(
            client_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic, True))
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicRouteError(answer.remark or f"No topic route info in name server for the topic: {topic}")
        return TopicRouteData.decode(check_success(answer).body)
