"""Requests of administrators to name servers and brokers."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self, TypeVar

import msgspec

from rocketbroker.client.core.client_config import ClientConfig, client_config
from rocketbroker.client.core.errors import BrokerNotFoundError, TopicRouteError
from rocketbroker.client.core.options import Seconds, checked
from rocketbroker.client.core.requests import check_success, client_request
from rocketbroker.codec.message.message_id import decode_message_id, join_address
from rocketbroker.codec.message.topic_validator import RETRY_GROUP_TOPIC_PREFIX
from rocketbroker.codec.remoting.bodies.route import BrokerData, TopicRouteData
from rocketbroker.codec.remoting.remoting_command import Command
from rocketbroker.common.config.properties_file import parse_properties, properties_text
from rocketbroker.common.errors import CodecError, ConfigError, RemotingError, RemotingTimeoutError, RocketBrokerError
from rocketbroker.common.lifecycle import MustClose

T = TypeVar("T")
# Limit of requests without settings (DefaultMQAdminExt's timeoutMillis).
_TIMEOUT_S = 5.0


class AdminConnection(MustClose):
    """Connections of an admin client.

    Args:
        config: ``host:port`` of the name servers, joined by ``;``, or the settings of the connections.
        timeout_s: limit for each request; by default that of the settings, or 5 s without settings.

    Attributes:
        config: the settings, with which clients of the same cluster can be made.
        without_master: names of the brokers that ``fetch_master_addresses`` left out, since they have slaves only.
    """

    @checked
    def __init__(self, config: str | ClientConfig, *, timeout_s: Seconds | None = None) -> None:
        if timeout_s is None and isinstance(config, str):
            timeout_s = _TIMEOUT_S
        config = client_config(config)
        if timeout_s is not None:
            config = msgspec.structs.replace(config, mq_client_api_timeout_s=timeout_s)
        self.config = config
        self.without_master: set[str] = set()
        self._remoting = config.remoting()
        self._timeout_s = config.mq_client_api_timeout_s
        self._closed = False
        self._silent: set[str] | None = None
        self._name_server = config.name_server(self._remoting)

    async def close(self) -> None:
        """Close the connections."""
        self.mark_closed()
        self._closed = True
        await self._remoting.stop()

    async def __aenter__(self) -> Self:
        self._used()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _used(self) -> None:
        """Warn from now on if this is not closed; a call after the close opens nothing."""
        if not self._closed:
            self.mark_open()

    async def examine_topic_route_info(self, topic: str) -> TopicRouteData:
        """Return the route of a topic; TopicRouteError for an unknown topic."""
        self._used()
        return await self._name_server.topic_route(topic)

    async def name_server_addresses(self) -> tuple[str, ...]:
        """Return the addresses of the name servers (DefaultMQAdminExt.getNameServerAddressList)."""
        self._used()
        return await self._name_server.addresses()

    def ask_silent_servers_once(self) -> None:
        """Fail at once, from now until the next call of this, where a server has let a request time out.

        For a look at everything: each request to a frozen broker takes the whole time limit, and there are many.
        """
        self._silent = set()

    async def _invoke(self, address: str, command: Command, timeout_s: float | None = None) -> Command:
        self._used()
        silent = self._silent
        if silent is not None and address in silent:
            raise RemotingTimeoutError(f"{address} has let a request before this one time out, and is not asked again")
        try:
            return await self._remoting.invoke(address, command, self._timeout_s if timeout_s is None else timeout_s)
        except RemotingTimeoutError:
            if silent is not None:
                silent.add(address)
            raise

    async def _ask(self, address: str, code: int, header: object = None, body: bytes = b"") -> Command:
        """Return the successful answer of a broker."""
        return check_success(await self._invoke(address, client_request(code, header, body)))

    async def _ask_name_server(self, code: int, header: object = None) -> Command:
        """Return the successful answer of one name server."""
        self._used()
        return check_success(await self._name_server.invoke(client_request(code, header)))

    async def _ask_name_servers(self, code: int, header: object = None, body: bytes = b"") -> dict[str, Command]:
        """Change something at all name servers; return their successful answers by address."""
        self._used()
        return await self._name_server.invoke_all(lambda: client_request(code, header, body))

    async def _of_each(
        self,
        addresses: Sequence[str],
        ask: Callable[[str], Awaitable[T]],
        failures: dict[str, RocketBrokerError] | None,
    ) -> list[T]:
        """Return what each broker answers.

        Args:
            addresses: the brokers.
            ask: asks one.
            failures: takes the errors of brokers by address, if another one answers; without it they are raised.

        Raises:
            RocketBrokerError: the error of the first broker, if none answers.
        """
        found, failed = [], {}
        for address in addresses:
            try:
                found.append(await ask(address))
            except RocketBrokerError as error:
                if failures is None:
                    raise
                failed[address] = error
        if failed and not found:
            raise failed[addresses[0]]
        if failures is not None:
            failures.update(failed)
        return found

    async def _ask_first(self, group: str, code: int, header: object) -> Command:
        """Return the answer of the first broker that a group consumes from and that answers."""
        unreachable: RemotingError | None = None
        for address in addresses_of((await self._group_route(group)).broker_datas):
            try:
                return await self._ask(address, code, header)
            except RemotingError as error:
                unreachable = error
        if unreachable is not None:
            raise unreachable
        raise BrokerNotFoundError(f"no broker in the route of {RETRY_GROUP_TOPIC_PREFIX}{group} has an address")

    async def _group_route(self, group: str, *others: str | None) -> TopicRouteData:
        """Return the route of a group's retry topic, else the first there is of ``others``."""
        topics = [RETRY_GROUP_TOPIC_PREFIX + group, *filter(None, others)]
        for topic in topics:
            with suppress(TopicRouteError):
                return await self.examine_topic_route_info(topic)
        raise TopicRouteError(f"there is no consumer group {group!r}: no route of {', '.join(topics)}")


def addresses_of(brokers: list[BrokerData]) -> list[str]:
    """Return one address of each broker: the master's, else that of the lowest id (BrokerData.selectBrokerAddr)."""
    return [data.broker_addrs[min(data.broker_addrs)] for data in brokers if data.broker_addrs]


def address_in(msg_id: str) -> str:
    """Return the address of the broker that has the message with an offset message id.

    Raises:
        CodecError: the id is invalid.
    """
    where = decode_message_id(msg_id)
    return join_address(where.ip, where.port)


def settings_in(answer: Command, source: str) -> dict[str, str]:
    """Return the settings in an answer, all values as text.

    Raises:
        CodecError: the body is not UTF-8, or no properties.
    """
    try:
        entries = parse_properties(bytes(answer.body).decode(), source, drops_backslashes=True)
    except UnicodeDecodeError as error:
        raise CodecError(f"the settings of {source} are not UTF-8: {error.reason} at byte {error.start}") from error
    except ConfigError as error:
        raise CodecError(f"the settings in the answer cannot be read: {error}") from error
    return {entry.key: entry.value for entry in entries}


def settings_body(settings: Mapping[str, str]) -> bytes:
    """Return the body of a request that changes settings."""
    return properties_text(dict(settings)).encode()
