"""A name server and a broker in one process, for development."""

from ipaddress import ip_address
from pathlib import Path

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.app.temporary_store import TemporaryStore
from rocketbroker.common.config.broker_config import BrokerConfig
from rocketbroker.common.config.load import BrokerSettings, NamesrvSettings
from rocketbroker.common.config.local_host import LOOPBACK, local_address
from rocketbroker.common.config.message_store_config import MessageStoreConfig
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.store.flush.write_refusal import Refusal


class DevServer:
    """A name server, and a broker that registers with it.

    Args:
        namesrv_port: port of the name server; 0 picks a free one.
        broker_port: port of the broker; 0 picks a free one. Its VIP port is two below.
        store: folder for all data; None creates a temporary one.
        host: address to listen on.
        advertise: address that clients connect to; the default is ``host``, or this machine's if ``host`` is 0.0.0.0.
    """

    def __init__(
        self,
        namesrv_port: int,
        broker_port: int,
        store: Path | None = None,
        *,
        host: str = LOOPBACK,
        advertise: str | None = None,
    ) -> None:
        self._namesrv_port = namesrv_port
        self._broker_port = broker_port
        self._given_store = store
        self._host = host
        self._advertise = advertise or (local_address() if ip_address(host).is_unspecified else host)
        self._temporary: TemporaryStore | None = None
        self._namesrv: NamesrvController | None = None
        self._broker: BrokerController | None = None
        self.store = store or Path()
        self.namesrv_addr = ""
        self.broker_addr = ""

    @property
    def keeps_store(self) -> bool:
        """True if the store outlives the process."""
        return self._given_store is not None

    @property
    def disk_full(self) -> str:
        """Reason to reject sends because the disk is full; empty if there is none."""
        return self._broker.store.refusals.reason(Refusal.DISK_FULL) if self._broker else ""

    async def start(self) -> None:
        """Start the name server, then the broker.

        Raises:
            ConfigError: A port is in use, or the folder cannot be created.
            StoreError: The store cannot be opened.
        """
        try:
            if self._given_store is None:
                self._temporary = TemporaryStore()
                self.store = self._temporary.path
            else:
                self.store = make_store(self._given_store)
            await self._start_servers()
        except BaseException:
            await self.stop()
            raise

    async def _start_servers(self) -> None:
        namesrv = NamesrvController(namesrv_settings(self._namesrv_port, self.store, self._host))
        await namesrv.start()
        shown = f"[{self._advertise}]" if ":" in self._advertise else self._advertise
        self._namesrv, self.namesrv_addr = namesrv, f"{shown}:{namesrv.port}"
        settings = broker_settings(self._broker_port, self.store, namesrv.address, self._host, self._advertise)
        broker = BrokerController.bind(settings)
        await broker.start()
        self._broker, self.broker_addr = broker, broker.address

    async def stop(self) -> None:
        """Stop the broker, then the name server; remove a temporary store."""
        for part in (self._broker, self._namesrv):
            if part is not None:
                await part.stop()
        self._broker = self._namesrv = None
        if self._temporary is not None:
            self._temporary.remove()
            self._temporary = None


def make_store(given: Path) -> Path:
    """Create the folder unless it exists; return its absolute path.

    Raises:
        ConfigError: The folder cannot be created.
    """
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot create the folder {given}: {error.strerror}; choose another --store") from error
    return given.absolute()


def namesrv_settings(port: int, store: Path, host: str = LOOPBACK) -> NamesrvSettings:
    """Return the settings of a name server that keeps its state beside the store."""
    config = NamesrvConfig(
        kv_config_path=str(store / "namesrv" / "kvConfig.json"),
        config_store_path=str(store / "namesrv" / "namesrv.properties"),
    )
    return NamesrvSettings(config, TransportConfig(listen_port=port, bind_address=host), None, (), {})


def broker_settings(
    port: int, store: Path, namesrv_addr: str, host: str = LOOPBACK, advertise: str = LOOPBACK
) -> BrokerSettings:
    """Return the settings of a broker that registers with one name server."""
    return BrokerSettings(
        BrokerConfig(broker_name="broker-a", broker_ip1=advertise, listen_port=port, namesrv_addr=namesrv_addr),
        MessageStoreConfig(store_path_root_dir=str(store), ha_listen_port=port and port + 1),
        TransportConfig(listen_port=port, bind_address=host),
        None,
        (),
        {},
    )
