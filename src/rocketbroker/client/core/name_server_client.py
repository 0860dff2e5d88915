"""Asks the name servers (the part of NettyRemotingClient and MQClientAPIImpl that talks to them)."""

import asyncio
import logging
import time
from collections.abc import Callable

from rocketbroker.client.core.errors import NameServerError, TopicRouteError
from rocketbroker.client.core.requests import check_success, client_request
from rocketbroker.codec.remoting.bodies.route import ClusterInfo, TopicRouteData
from rocketbroker.codec.remoting.headers.namesrv import GetRouteInfoRequestHeader
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.address_server_client import fetch_name_servers
from rocketbroker.common.errors import (
    CodecError,
    ConfigError,
    RemotingConnectError,
    RemotingError,
    RocketBrokerError,
)
from rocketbroker.transport.remoting_client import RemotingClient, split_address

log = logging.getLogger(__name__)

_SCHEMES = ("http://", "https://")
# Seconds between requests to an address server.
_FETCH_INTERVAL_S = 120.0
# Requests that each name server serves, so that a server which does not is a broker.
_ALWAYS_SERVED = {
    RequestCode.GET_ROUTEINFO_BY_TOPIC,
    RequestCode.GET_BROKER_CLUSTER_INFO,
    RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER,
}


def is_address_server(namesrv_addr: str) -> bool:
    """Return true for the URL of an address server, false for the addresses of name servers."""
    return namesrv_addr.strip().startswith(_SCHEMES)


def split_addresses(namesrv_addr: str) -> tuple[str, ...]:
    """Return the addresses of ``host:port;host:port``.

    Raises:
        ConfigError: no address, or an address without a port.
    """
    addresses = tuple(part.strip() for part in namesrv_addr.split(";") if part.strip())
    if not addresses:
        raise ConfigError("no name server address given; use host:port, or several joined by ';', or set NAMESRV_ADDR")
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
        namesrv_addr: ``host:port`` of the name servers, joined by ``;``, or the URL of an address server, which is
            asked on first use and every two minutes.
        timeout_s: limit for the answer of one name server.
        unit_name: unit whose name servers the address server is asked for.

    Attributes:
        source: ``namesrv_addr`` in parts, the same for all clients of a cluster.

    Raises:
        ConfigError: no address, or an address without a port.
    """

    def __init__(
        self, remoting: RemotingClient, namesrv_addr: str, timeout_s: float = 3.0, *, unit_name: str = ""
    ) -> None:
        self._remoting = remoting
        self._timeout_s = timeout_s
        self._chosen = 0
        self._fetched_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._url = ""
        self._addresses: tuple[str, ...] = ()
        if is_address_server(namesrv_addr):
            self._url = f"{namesrv_addr.strip()}{f'-{unit_name}?nofix=1' if unit_name else ''}"
            self.source: tuple[str, ...] = (self._url,)
        else:
            self.source = self._addresses = split_addresses(namesrv_addr)

    async def addresses(self) -> tuple[str, ...]:
        """Return the addresses of the name servers.

        Raises:
            NameServerError: the address server gives none.
        """
        if self._url and self._is_due() and not (self._addresses and self._fetching.locked()):
            async with self._fetching:
                if self._is_due():
                    await self._fetch()
        return self._addresses

    def _is_due(self) -> bool:
        return time.monotonic() >= self._fetched_at + _FETCH_INTERVAL_S

    async def _fetch(self) -> None:
        try:
            tls = self._remoting.tls
            found = await fetch_name_servers(self._url, None if tls is None else tls())
            self._addresses = tuple(found) or self._addresses
        except RemotingError as error:
            if not self._addresses:
                raise NameServerError(str(error)) from error
            log.warning("%s; the known name servers are asked: %s", error, "; ".join(self._addresses))
        self._fetched_at = time.monotonic()

    async def invoke(self, command: Command) -> Command:
        """Return the answer of the first name server that gives one, whatever its code.

        Raises:
            NameServerError: none answered, or only brokers did; the text has the reason of each.
        """
        reasons = []
        addresses = await self.addresses()
        for _ in addresses:
            address = addresses[self._chosen % len(addresses)]
            try:
                answer = await self._remoting.invoke(address, command, self._timeout_s)
            except RemotingError as error:
                reasons.append(str(error))
            else:
                if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED or command.code not in _ALWAYS_SERVED:
                    return answer
                reasons.append(f"{address} is a broker; give the address of a name server, by default port 9876")
            self._chosen = (self._chosen + 1) % len(addresses)
        raise NameServerError(f"no name server answers: {'; '.join(reasons) or 'the address server knows none'}")

    async def invoke_all(self, command: Callable[[], Command]) -> dict[str, Command]:
        """Send a request for a change to each name server, and return the answers by address; each must agree.

        Raises:
            RemotingError: one does not answer.
            BrokerResponseError: one refuses. A note of either error names the name servers that have agreed before.
        """
        answers: dict[str, Command] = {}
        for address in await self.addresses():
            try:
                answers[address] = check_success(await self._remoting.invoke(address, command(), self._timeout_s))
            except RocketBrokerError as error:
                if answers:
                    error.add_note(f"{', '.join(answers)} had agreed already; repeat it once all name servers answer")
                raise
        return answers

    async def has_brokers(self) -> bool | None:
        """Return true if a broker is registered, None if that cannot be found out."""
        try:
            answer = check_success(await self.invoke(client_request(RequestCode.GET_BROKER_CLUSTER_INFO)))
            return bool(ClusterInfo.decode(answer.body).broker_addr_table)
        except RocketBrokerError:
            return None

    async def topic_route(self, topic: str) -> TopicRouteData:
        """Return the route of a topic.

        Raises:
            TopicRouteError: the name server does not know the topic.
            NameServerError: none answered, or the answer is no route.
            BrokerResponseError: an answer other than these.
        """
        answer = await self.invoke(
            client_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic, True))
        )
        if answer.code == ResponseCode.TOPIC_NOT_EXIST:
            raise TopicRouteError(answer.remark or f"No topic route info in name server for the topic: {topic}")
        try:
            return TopicRouteData.decode(check_success(answer).body)
        except CodecError as error:
            raise NameServerError(f"the name server's route of topic {topic} cannot be read: {error}") from error
