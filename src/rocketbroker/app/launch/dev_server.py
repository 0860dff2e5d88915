"""A name server and its brokers in one process, as ``mqdev`` and ``rocketbroker.testing`` start them.

Brokers can be stopped and started again on the same ports. The store is a given folder or a temporary one, which goes
with the process; the next mqdev removes the temporary folder of a killed one.
"""

import contextlib
import fcntl
import os
import shutil
import socket
import ssl
import stat
import tempfile
from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path

from rocketbroker.app.access_control import AccessControl
from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.launch.first_users import FirstUsers
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common.config.fields import fields_by_name
from rocketbroker.common.config.hosts import LOOPBACK, local_address
from rocketbroker.common.config.load import (
    VIP_PORT_DISTANCE,
    BrokerSettings,
    NamesrvSettings,
    broker_settings_of,
    resolve,
)
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.common.lifecycle import stop_all, uninterrupted
from rocketbroker.store.clean.disk_watch import DiskUse
from rocketbroker.store.commitlog.put_message import Refusal
from rocketbroker.transport.remoting_server import bind_sockets, close_sockets
from rocketbroker.transport.tls_contexts import client_context

_PREFIX = "mqdev-"
# Locked while its mqdev runs. Only folders with this file and this content are removed.
_MARKER = "mqdev.lock"
_CONTENT = b"temporary store of mqdev, removed once nobody has this file locked\n"


class StoreFolder:
    """The given folder, or a new one in the directory for temporary files.

    Args:
        given: folder to keep; None creates a temporary one.

    Attributes:
        path: the folder, absolute once it is created.
        is_kept: true if the folder outlives the process.
    """

    def __init__(self, given: Path | None) -> None:
        self._marker = -1
        self.path = given or Path()
        self.is_kept = given is not None

    def create(self) -> None:
        """Create the folder unless it is given and exists.

        Raises:
            ConfigError: The given folder cannot be created.
        """
        if not self.is_kept:
            self._create_temporary()
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            text = f"cannot create the folder {self.path}: {error.strerror}; choose another --store"
            raise ConfigError(text) from error
        self.path = self.path.absolute()

    def _create_temporary(self) -> None:
        remove_leftovers()
        self.path = Path(tempfile.mkdtemp(prefix=_PREFIX))
        self._marker = os.open(self.path / _MARKER, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        # Lock first: once the marker has its content, others may remove the folder unless it is locked.
        fcntl.flock(self._marker, fcntl.LOCK_EX)
        os.write(self._marker, _CONTENT)

    def clear(self) -> None:
        """Remove all data of a temporary folder.

        Raises:
            ConfigError: The folder is to be kept.
        """
        if self.is_kept:
            raise ConfigError(
                f"the data in {self.path} is to be kept; leave out the store for data that can be removed"
            )
        for path in self.path.iterdir():
            if path.name == _MARKER:
                continue
            if path.is_dir():
                shutil.rmtree(path)
            else:
                path.unlink()

    def remove(self) -> None:
        """Remove a temporary folder."""
        if self._marker >= 0:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(self._marker)
            self._marker = -1


def remove_leftovers() -> None:
    """Remove the folders of killed mqdev processes of this user."""
    for path in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*"):
        try:
            _remove_leftover(path)
        except OSError:
            continue  # folder of another user, or already removed


def _remove_leftover(path: Path) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        return
    marker = os.open(path / _MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(marker, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.read(marker, len(_CONTENT) + 1) == _CONTENT:
            shutil.rmtree(path)
    finally:
        os.close(marker)


FIRST_BROKER = "broker-a"
# Makes a broker whose ports are bound.
BindBroker = Callable[[BrokerSettings], BrokerController]


class DevBroker:
    """A broker that can be stopped and started again.

    Args:
        settings: its settings; ``listenPort`` 0 picks a free port, which a restart keeps. The HA port may change then,
            as slaves ask a name server for it.
        bind: makes the broker for a start.

    Attributes:
        settings: the settings, with the port once it is bound.
    """

    def __init__(self, settings: BrokerSettings, bind: BindBroker = BrokerController.bind) -> None:
        self.settings = settings
        self._bind = bind
        self._controller: BrokerController | None = None
        self._held: list[socket.socket] = []

    @property
    def name(self) -> str:
        """The brokerName."""
        return self.settings.broker.broker_name

    @property
    def address(self) -> str:
        """``ip:port`` for clients."""
        return join_address(self.settings.broker.broker_ip1, self.settings.broker.listen_port)

    @property
    def endpoints(self) -> str:
        """``ip:port`` for the 5.x SDKs; empty without a gRPC port."""
        broker = self.settings.broker
        return join_address(broker.broker_ip1, broker.grpc_server_port) if broker.grpc_server_enable else ""

    @property
    def is_running(self) -> bool:
        """True between start and stop."""
        return self._controller is not None

    @property
    def controller(self) -> BrokerController:
        """The parts of the running broker.

        Raises:
            ConfigError: It is not running.
        """
        if self._controller is None:
            raise ConfigError(f"broker {self.name} is not running; start it first")
        return self._controller

    @property
    def disk_full(self) -> str:
        """Reason to reject sends because the disk is full; empty if there is none."""
        return self._controller.store.refusals.reason(Refusal.DISK_FULL) if self._controller else ""

    async def start(self) -> None:
        """Start the broker, and register it at the name server.

        Raises:
            ConfigError: A port is in use.
            StoreError: The store cannot be opened.
        """
        try:
            controller = self._bind(self.settings)
        finally:
            self._release()
        await controller.start()
        if not self.settings.transport.listen_port:
            self.settings = self.settings.at_port(controller.port).at_ha_port(0)
        if controller.grpc_port:
            self.settings = self.settings.with_broker(grpc_server_port=controller.grpc_port)
        self._controller = controller

    async def stop(self, *, keep_ports: bool = False) -> None:
        """Stop the broker if it is running.

        Args:
            keep_ports: let no other process have its ports until the next start or stop; they refuse connections.
        """
        controller, self._controller = self._controller, None
        if controller is not None:
            await controller.stop()
        if not keep_ports:
            self._release()
        elif controller is not None:
            transport = self.settings.transport
            with contextlib.suppress(ConfigError):  # taken already, as the next start will say
                self._held = bind_sockets(transport.bind_address, transport.listen_port, VIP_PORT_DISTANCE)

    def _release(self) -> None:
        close_sockets(self._held)
        self._held = []


def disk_use(percent: int) -> DiskUse:
    """Return the use of a disk that is that full."""
    return DiskUse(percent, 100)


def broker_settings(
    port: int,
    store: Path,
    namesrv_addr: str,
    *,
    host: str = LOOPBACK,
    advertise: str = LOOPBACK,
    name: str = FIRST_BROKER,
    properties: Mapping[str, str] | None = None,
) -> BrokerSettings:
    """Return the settings of a broker that registers with one name server.

    Raises:
        ConfigError: A property is unknown, invalid or one of those set here.
    """
    given = {
        "brokerName": name,
        "brokerIP1": advertise,
        "namesrvAddr": namesrv_addr,
        "listenPort": str(port),
        "bindAddress": host,
        "storePathRootDir": str(store),
        "haListenPort": str(port and port + 1),
    }
    check_not_set(given, properties or {})
    entries = [Entry(key, str(value), "properties") for key, value in {**given, **(properties or {})}.items()]
    return broker_settings_of(entries)


def check_not_set(own: Mapping[str, object], properties: Mapping[str, str]) -> None:
    """Check that properties leave out what a development server sets itself.

    Raises:
        ConfigError: One is among the server's own.
    """
    for name in sorted(own.keys() & properties.keys()):
        raise ConfigError(f"{name} is set by the server itself; leave it out of the properties")


_LOG_FILE = 8 * 1024 * 1024


class DevServer:
    """A name server, and brokers that register with it.

    Args:
        namesrv_port: port of the name server; 0 picks a free one.
        broker_port: port of the first broker; 0 picks a free one. Its VIP port is two below.
        store: folder for all data; None creates a temporary one.
        host: address to listen on.
        advertise: address that clients connect to; the default is ``host``, or this machine's if ``host`` is 0.0.0.0.
        brokers: names of the brokers. The first keeps its store in the folder itself, others in a folder of their name.
        properties: settings of all brokers by RocketMQ's names; those of connections also apply to the name server.
        bind: makes a broker for a start.
        users: users that exist when the server is ready; without them, there is no access control.
    """

    def __init__(  # noqa: PLR0913 - the first five are options of mqdev
        self,
        namesrv_port: int,
        broker_port: int,
        store: Path | None = None,
        *,
        host: str = LOOPBACK,
        advertise: str | None = None,
        brokers: tuple[str, ...] = (FIRST_BROKER,),
        properties: Mapping[str, str] | None = None,
        bind: BindBroker = BrokerController.bind,
        users: FirstUsers | None = None,
    ) -> None:
        self._users = users
        self._namesrv_port = namesrv_port
        self._broker_port = broker_port
        self._folder = StoreFolder(store)
        self._host = host
        self._advertise = advertised(host, advertise)
        self._names = brokers
        self._properties = properties if users is None else {**users.properties, **(properties or {})}
        self._bind = bind
        self._namesrv: NamesrvController | None = None
        self.brokers: dict[str, DevBroker] = {}
        self.namesrv_addr = ""

    @property
    def store(self) -> Path:
        """Folder for all data."""
        return self._folder.path

    @property
    def keeps_store(self) -> bool:
        """True if the store outlives the process."""
        return self._folder.is_kept

    @property
    def broker_addr(self) -> str:
        """``ip:port`` of the first broker; empty before the start."""
        return next((broker.address for broker in self.brokers.values()), "")

    @property
    def endpoints(self) -> str:
        """``ip:port`` of the first broker for the 5.x SDKs; empty before the start, and without gRPC ports."""
        return next((broker.endpoints for broker in self.brokers.values()), "")

    @property
    def disk_full(self) -> str:
        """Reason of the first broker to reject sends because the disk is full; empty if there is none."""
        return next((broker.disk_full for broker in self.brokers.values()), "")

    def inner_tls(self) -> ssl.SSLContext | bool:
        """Return the TLS settings with which the brokers connect to each other; False without TLS.

        Blocks: it reads files.
        """
        transport = next(iter(self.brokers.values())).settings.transport
        return client_context(transport) if transport.tls_enable else False

    async def start(self) -> None:
        """Start the name server, then the brokers.

        Raises:
            ConfigError: A port is in use, a property is wrong, or the folder cannot be created.
            StoreError: The store cannot be opened.
        """
        try:
            self._folder.create()
            await self._start_servers()
        except BaseException:
            await self.stop()
            raise

    async def _start_namesrv(self) -> NamesrvController:
        namesrv = NamesrvController(namesrv_settings(self._namesrv_port, self.store, self._host, self._properties))
        await namesrv.start()
        self._namesrv, self.namesrv_addr = namesrv, join_address(self._advertise, namesrv.port)
        await self._create_users(namesrv.access)
        return namesrv

    async def _create_users(self, access: AccessControl | None) -> None:
        if self._users is not None and access is not None:
            await self._users.create(access.store)

    async def _start_servers(self) -> None:
        namesrv = await self._start_namesrv()
        for name in self._names:
            settings = broker_settings(
                0 if self.brokers else self._broker_port,
                self.store / name if self.brokers else self.store,
                namesrv.address,
                host=self._host,
                advertise=self._advertise,
                name=name,
                properties=self._properties,
            )
            broker = self.brokers[name] = DevBroker(settings, self._bind)
            await broker.start()
            await self._create_users(broker.controller.access)

    async def reset(self, emptied: Callable[[], None]) -> None:
        """Make all as at the start, on the same addresses; stopped brokers run again.

        Args:
            emptied: called while nothing runs and nothing is stored.

        Raises:
            ConfigError: The store is to be kept, or another process took a port.
        """
        if self.keeps_store:
            self._folder.clear()  # raises
        for broker in self.brokers.values():
            await broker.stop(keep_ports=True)
        if self._namesrv is not None:
            self._namesrv_port = self._namesrv.port
            await self._namesrv.stop()
            self._namesrv = None
        self._folder.clear()
        emptied()
        await self._start_namesrv()
        for broker in self.brokers.values():
            await broker.start()
            await self._create_users(broker.controller.access)

    async def stop(self) -> None:
        """Stop the brokers, then the name server; remove a temporary store. A cancelled caller waits as well."""
        brokers, namesrv = list(self.brokers.values()), self._namesrv
        self.brokers = {}
        self._namesrv = None
        await uninterrupted(
            stop_all(
                *(broker.stop for broker in brokers),
                None if namesrv is None else namesrv.stop,
                self._folder.remove,
            )
        )


def small_files(properties: Mapping[str, str]) -> dict[str, str]:
    """Return properties with sizes of store files for servers that live as long as a test, unless some are given.

    Blocks of the first two log files are allocated at the start. Each holds the longest message, however few there are.
    """
    longest = properties.get("maxMessageSize", "")
    log_file = max(_LOG_FILE, 2 * int(longest)) if longest.isdecimal() else _LOG_FILE
    return {
        "mappedFileSizeCommitLog": str(log_file),
        "mappedFileSizeConsumeQueue": "200000",
        "maxHashSlotNum": "10000",
        "maxIndexNum": "40000",
        **properties,
    }


def advertised(host: str, advertise: str | None) -> str:
    """Return the address that clients connect to: the given one, or this machine's if all addresses are bound."""
    return advertise or (local_address() if ip_address(host).is_unspecified else host)


def namesrv_settings(
    port: int, store: Path, host: str = LOOPBACK, properties: Mapping[str, str] | None = None
) -> NamesrvSettings:
    """Return the settings of a name server that keeps its state beside the store.

    Raises:
        ConfigError: A property of a connection is invalid.
    """
    of_connections = fields_by_name(TransportConfig)
    given = {"listenPort": str(port), "bindAddress": host} | {
        name: value for name, value in (properties or {}).items() if name in of_connections
    }
    transport = resolve((TransportConfig,), [Entry(*each, "properties") for each in given.items()])
    config = NamesrvConfig(
        kv_config_path=str(store / "namesrv" / "kvConfig.json"),
        config_store_path=str(store / "namesrv" / "namesrv.properties"),
    )
    return NamesrvSettings(config, transport.model(TransportConfig), None, (), {})
