"""Name servers and their addresses, and the address of the master that they tell (DefaultTopAddressing)."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Sized
from typing import Final, NamedTuple

from rocketbroker.broker.registration.broker_registration import BrokerRegistration
from rocketbroker.broker.topic.topic_config_manager import TopicChange
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.codec.remoting.bodies.remoting_serializable import DataVersion, KVTable
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.handler import Connection
from rocketbroker.codec.remoting.headers.namesrv import QueryDataVersionResponseHeader, RegisterBrokerResponseHeader
from rocketbroker.codec.remoting.remoting_command import Command, from_ext_fields
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.address_server_client import fetch_name_servers
from rocketbroker.common.config import BrokerConfig
from rocketbroker.common.errors import CodecError, RemotingConnectError, RemotingError
from rocketbroker.common.lifecycle import TaskOwner
from rocketbroker.transport.remoting_client import RemotingClient
from rocketbroker.transport.tls_transport import CurrentContext

# Name servers from an address server over HTTP (org.apache.rocketmq.common.namesrv.DefaultTopAddressing).
#
# ``GET http[s]://<rmqAddressServerDomain>:8080/rocketmq/<rmqAddressServerSubGroup>`` answers ``host:port;host:port``.

log = logging.getLogger(__name__)

DEFAULT_PORT = 8080


class TopAddressing:
    """Client of the address server; logs failures when they begin, not at each attempt.

    Args:
        config: where the address server is.
        tls: returns the settings for ``https``; those of the system by default.
    """

    def __init__(self, config: BrokerConfig, tls: CurrentContext | None = None) -> None:
        self._config = config
        self._tls = tls
        self._failing = False

    @property
    def url(self) -> str:
        """URL of the list."""
        scheme, _, domain = self._config.rmq_address_server_domain.rpartition("://")
        host = domain if ":" in domain else f"{domain}:{DEFAULT_PORT}"
        return f"{scheme or 'http'}://{host}/rocketmq/{self._config.rmq_address_server_sub_group}"

    async def fetch(self) -> list[str] | None:
        """Return the addresses of the name servers; ``None`` if the address server gives no valid answer."""
        try:
            addresses = await fetch_name_servers(self.url, None if self._tls is None else self._tls())
        except RemotingError as error:
            if not self._failing:
                log.error("%s; retrying", error)  # noqa: TRY400
            self._failing = True
            return None
        self._failing = False
        return addresses


class NameLookup:
    """Addresses of the host names in ``namesrvAddr`` (BrokerOuterAPI.updateNameServerAddressListByDnsLookup)."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._failing: set[str] = set()

    async def addresses(self) -> list[str]:
        """Return every ``host:port`` that the DNS has for the names; log failures when they begin."""
        found: dict[str, None] = {}
        for address in filter(None, map(str.strip, self._config.namesrv_addr.split(";"))):
            host, _, port = address.rpartition(":")
            try:
                infos = await asyncio.get_running_loop().getaddrinfo(
                    host.strip("[]"), int(port), type=socket.SOCK_STREAM
                )
            except OSError as error:
                if address not in self._failing:
                    log.error("the name server %s cannot be looked up: %s; retrying", address, error)  # noqa: TRY400
                self._failing.add(address)
                continue
            self._failing.discard(address)
            found |= {join_address(*info[4][:2]): None for info in infos}
        return list(found)


class Master(NamedTuple):
    """A master: ``address`` for requests, ``ha_address`` for its log; both empty while none is registered."""

    address: str = ""
    ha_address: str = ""


_NOBODY: Final = Master()


class MasterAddress:
    """The registered master of this broker's name, by the newest answers of the name servers.

    A name server that fails keeps its answer only while no other one has answered, so that a slave follows its master
    while all name servers are dead.

    Args:
        own_address: returns the address of this broker, which is never its own master.

    Attributes:
        master: the master.
        answers: true while the master answers requests, as far as is known.
    """

    def __init__(self, own_address: Callable[[], str]) -> None:
        self._own_address = own_address
        # Newest answers by name server.
        self._answers: dict[str, Master] = {}
        # A master that is about to register; it counts while no name server names one.
        self._announced = _NOBODY
        self._listeners: list[Callable[[Master], None]] = []
        self._logged = ""
        self.master = _NOBODY
        self.answers = False

    def address(self) -> str:
        """Return the address of the master for requests, empty without one."""
        return self.master.address

    def ha_address(self) -> str:
        """Return the address of the master's log, empty without one."""
        return self.master.ha_address

    def on_change(self, listener: Callable[[Master], None]) -> None:
        """Add a listener for another master, or none."""
        self._listeners.append(listener)

    def announce(self, master: Master) -> bool:
        """Follow a master that is about to register; return false if a name server names another one."""
        if master.address in {"", self._own_address()}:
            return False
        self._announced = master
        self._choose()
        return self.master.address == master.address

    def forget(self) -> None:
        """Forget the master: no name server has it any more."""
        self._answers.clear()
        self._announced = _NOBODY
        self._choose()

    def registered(self, name_server: str, master: Master) -> None:
        """Note the answer of a name server to a registration."""
        if master.address:
            self._announced = _NOBODY
        if master.address and master.address == self._own_address():
            self._log(
                f"name server {name_server} has this broker's address {master.address} as that of its master: "
                "another broker uses it; give each broker its own address"
            )
            master = _NOBODY
        self._answers.pop(name_server, None)
        self._answers[name_server] = master
        self._choose()

    def lost(self, name_server: str) -> None:
        """Note that a name server no longer answers."""
        if len(self._answers) > 1 and self._answers.pop(name_server, None) is not None:
            self._choose()

    def _choose(self) -> None:
        """Keep the master while a name server has it; otherwise take the one that was named last."""
        named = [(server, master) for server, master in self._answers.items() if master.address]
        if self._announced.address and not named:
            named = [("the master itself", self._announced)]
        masters = {master for _, master in named}
        if len({master.address for master in masters}) > 1:
            where = ", ".join(f"{master.address} at {server}" for server, master in named)
            self._log(
                f"the name servers have different masters for this slave: {where}; stop one of them, or give each "
                "its own brokerName"
            )
        chosen = self.master if self.master in masters else named[-1][1] if named else _NOBODY
        if chosen == self.master:
            return
        self.master = chosen
        self.answers = bool(chosen.address)
        log.info("the master of this slave is %s", chosen.address or "not registered")
        for listener in self._listeners:
            listener(chosen)

    def _log(self, text: str) -> None:
        if text != self._logged:
            self._logged = text
            log.error("%s", text)


UNREGISTER_TIMEOUT_S = 3.0
SINGLE_TIMEOUT_S = 3.0
# Pause before a failed registration is retried: a name server needs 3 s to free the address of a dead broker.
RETRY_S = 5.0
# Pause before a connect that was refused is retried. A name server that has just restarted knows no broker: until all
# have registered again, clients see a part of their queues only.
CONNECT_RETRY_S = 1.0
# More changed topics than this are registered with one REGISTER_BROKER, even with enableSingleTopicRegister.
MOST_SINGLE = 64


class Registered(NamedTuple):
    """Answer of a name server to a registration of all topics: the master of a slave, and the ordered topics."""

    master: Master
    order_topics: list[str]


class NamesrvLink:
    """Pending registrations at one name server, and the task that sends them, one request at a time.

    A name server forgets a broker whose connection closes, so over a new connection all topics are registered first.
    After a failure the next registration is one of all topics.

    Args:
        address: ``host:port`` of the name server.
        config: timeouts, and ``forceRegister``.
        on_answer: called with this name server's address and its answer, ``None`` once it no longer answers.
    """

    def __init__(
        self,
        address: str,
        client: RemotingClient,
        config: BrokerConfig,
        registration: BrokerRegistration,
        on_answer: Callable[[str, Registered | None], None],
    ) -> None:
        self.address = address
        self._client = client
        self._config = config
        self._registration = registration
        self._on_answer = on_answer
        self._tasks = TaskOwner(f"NamesrvLink {address}")
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._whole_due = False
        self._changed: dict[str, TopicConfig] = {}
        self._changed_version = DataVersion()
        # The connection over which all topics were registered.
        self._connection: Connection | None = None
        # None: not tried yet; "": registered; else the reason why not.
        self._failure: str | None = None
        self._waiting: list[asyncio.Future[None]] = []
        self._retry: asyncio.TimerHandle | None = None

    @property
    def is_registered(self) -> bool:
        """True if the last registration succeeded."""
        return self._failure == ""

    def start(self) -> None:
        """Start sending registrations, all of them again whenever the connection is lost."""
        self._client.on_loss(self.address, self._lost)
        self._tasks.forever(self._run, "run")

    def register_whole(self) -> asyncio.Future[None]:
        """Register all topics soon; the future is done once that has succeeded or failed."""
        self._whole_due = True
        return self._ask()

    def register_change(self, change: TopicChange) -> asyncio.Future[None]:
        """Register changed topics soon; the future is done once that has succeeded or failed."""
        # A name server learns of a deletion only from a registration of all topics.
        self._whole_due |= change.is_deletion
        self._changed.update((topic.topic_name, topic) for topic in change.topics)
        self._changed_version = change.version
        return self._ask()

    def _lost(self) -> None:
        """Register again: a name server forgets a broker whose connection closes, or has forgotten all by a restart."""
        if self.is_registered:
            self._whole_due = True
            self._idle.clear()
            self._wake.set()

    async def settled(self) -> None:
        """Wait until all scheduled registrations have succeeded or failed."""
        await self._idle.wait()

    async def stop(self, *, unregister: bool) -> None:
        """End the task and, with ``unregister``, unregister the broker."""
        self._client.on_loss(self.address, None)
        await self._tasks.stop()
        self._cancel_retry()
        self._idle.set()
        _release(self._waiting)
        if unregister and self.is_registered:
            try:
                await self._client.invoke(self.address, self._registration.unregister(), UNREGISTER_TIMEOUT_S)
            except RemotingError as error:
                log.warning("could not unregister from name server %s: %s", self.address, error)
        self._client.close_address(self.address)

    def _ask(self) -> asyncio.Future[None]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        if self._failure:  # no caller waits for a name server that is known to fail; the retry registers
            future.set_result(None)
        else:
            self._waiting.append(future)
            timer = loop.call_later(self._config.register_broker_timeout_mills / 1000, _release, [future])
            future.add_done_callback(lambda _future: timer.cancel())
        self._idle.clear()
        self._wake.set()
        return future

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            self._cancel_retry()
            waiting, self._waiting = self._waiting, []
            done, retry_s = False, RETRY_S
            try:
                await self._send_due()
                done = self.is_registered
            except (RemotingError, CodecError) as error:
                retry_s = min(CONNECT_RETRY_S, RETRY_S) if isinstance(error, RemotingConnectError) else RETRY_S
                self._note(str(error))
            finally:
                self._whole_due |= not done
                _release(waiting)
                if not done:
                    _release(self._waiting)
                    self._retry = asyncio.get_running_loop().call_later(retry_s, self._wake.set)
                if not self._wake.is_set():
                    self._idle.set()

    def _cancel_retry(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None

    async def _send_due(self) -> None:
        """Send the registrations that are due."""
        connection = await self._client.connect(self.address)
        changed, self._changed = self._changed, {}
        if not self._whole_due and connection is self._connection and self._registers_alone(changed):
            await self._register(self._changes(changed))
            return
        self._whole_due = False
        known = self.is_registered and connection is self._connection
        if changed or self._config.force_register or not known or await self._is_outdated():
            answer = await self._register(self._registration.whole())
            self._connection = connection
            if answer is not None:
                self._on_answer(self.address, _registered(answer))

    def _registers_alone(self, changed: Sized) -> bool:
        return not self._config.enable_single_topic_register or len(changed) <= MOST_SINGLE

    def _changes(self, changed: dict[str, TopicConfig]) -> Iterable[Command]:
        if self._config.enable_single_topic_register:
            return map(self._registration.single, changed.values())
        return self._registration.increment(TopicChange(list(changed.values()), self._changed_version, False))

    async def _register(self, commands: Iterable[Command]) -> Command | None:
        """Send registrations until one is rejected; return the last answer, ``None`` if it is a rejection."""
        answer = None
        for command in commands:
            answer = await self._invoke(command)
            if answer.code != ResponseCode.SUCCESS:
                self._note(f"it answers {answer.code} {answer.remark}")
                return None
        self._note("")
        return answer

    async def _is_outdated(self) -> bool:
        answer = await self._invoke(self._registration.query_data_version())
        if answer.code != ResponseCode.SUCCESS:
            return True
        return from_ext_fields(answer.header, QueryDataVersionResponseHeader).changed

    async def _invoke(self, command: Command) -> Command:
        timeout_s = self._config.register_broker_timeout_mills / 1000
        if command.code == RequestCode.REGISTER_TOPIC_IN_NAMESRV:
            timeout_s = min(timeout_s, SINGLE_TIMEOUT_S)
        return await self._client.invoke(self.address, command, timeout_s)

    def _note(self, failure: str) -> None:
        """Record the state, and log it when it changes, not at each attempt."""
        if failure:
            self._on_answer(self.address, None)
        if failure and failure != self._failure:
            log.error("not registered at name server %s: %s; retrying", self.address, failure)
        elif not failure and self._failure != "":
            log.info("registered at name server %s", self.address)
        self._failure = failure


def _registered(answer: Command) -> Registered:
    header = from_ext_fields(answer.header, RegisterBrokerResponseHeader)
    topics = list(KVTable.decode(answer.body).table) if answer.body else []
    return Registered(Master(header.master_addr or "", header.ha_server_addr or ""), topics)


def _release(waiting: Iterable[asyncio.Future[None]]) -> None:
    for future in waiting:
        if not future.done():
            future.set_result(None)
