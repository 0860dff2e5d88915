"""A name server and its brokers in one process, as ``mqdev`` and ``rocketbroker.testing`` start them."""

from collections.abc import Callable, Mapping
from ipaddress import ip_address
from pathlib import Path

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.dev_broker import FIRST_BROKER, BindBroker, DevBroker, broker_settings
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.app.store_folder import StoreFolder
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common.config.describe import fields_by_name
from rocketbroker.common.config.load import NamesrvSettings
from rocketbroker.common.config.local_host import LOOPBACK, local_address
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.config.resolve import resolve
from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.common.lifecycle import stop_all, uninterrupted

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
    ) -> None:
        self._namesrv_port = namesrv_port
        self._broker_port = broker_port
        self._folder = StoreFolder(store)
        self._host = host
        self._advertise = advertised(host, advertise)
        self._names = brokers
        self._properties = properties
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
    def disk_full(self) -> str:
        """Reason of the first broker to reject sends because the disk is full; empty if there is none."""
        return next((broker.disk_full for broker in self.brokers.values()), "")

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
        return namesrv

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
