"""A name server and a broker in one process, on the loopback address, for development."""

import shutil
import tempfile
from pathlib import Path

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.app.namesrv_controller import NamesrvController
from rocketbroker.common.config.broker_config import BrokerConfig
from rocketbroker.common.config.load import BrokerSettings, NamesrvSettings
from rocketbroker.common.config.message_store_config import MessageStoreConfig
from rocketbroker.common.config.namesrv_config import NamesrvConfig
from rocketbroker.common.config.transport_config import TransportConfig
from rocketbroker.common.errors import ConfigError
from rocketbroker.store.flush.write_refusal import Refusal

LOOPBACK = "127.0.0.1"


class DevServer:
    """Wires a name server and a broker that registers there.

    Args:
        namesrv_port: port of the name server; 0 takes a free one.
        broker_port: port of the broker; 0 takes a free one. The port two below is its VIP port.
        store: folder of everything that is stored; None takes a new one, which is removed at the end.
    """

    def __init__(self, namesrv_port: int, broker_port: int, store: Path | None = None) -> None:
        self._namesrv_port = namesrv_port
        self._broker_port = broker_port
        self._given_store = store
        self._namesrv: NamesrvController | None = None
        self._broker: BrokerController | None = None
        self.store = store or Path()
        self.namesrv_addr = ""
        self.broker_addr = ""

    @property
    def keeps_store(self) -> bool:
        """Whether what is stored outlives the process."""
        return self._given_store is not None

    @property
    def disk_full(self) -> str:
        """Why the broker refuses sends for want of room on the disk, empty when it does not."""
        return self._broker.store.refusals.reason(Refusal.DISK_FULL) if self._broker else ""

    async def start(self) -> None:
        """Start the name server, then the broker.

        Raises:
            ConfigError: a port is in use, or the folder cannot be made.
            StoreError: the store cannot be opened.
        """
        try:
            self.store = make_store(self._given_store)
            await self._start_servers()
        except BaseException:
            await self.stop()
            raise

    async def _start_servers(self) -> None:
        namesrv = NamesrvController(namesrv_settings(self._namesrv_port, self.store))
        await namesrv.start()
        self._namesrv, self.namesrv_addr = namesrv, namesrv.address
        broker = BrokerController.bind(broker_settings(self._broker_port, self.store, self.namesrv_addr))
        await broker.start()
        self._broker, self.broker_addr = broker, broker.address

    async def stop(self) -> None:
        """Stop the broker, then the name server; remove the folder unless it was given."""
        for part in (self._broker, self._namesrv):
            if part is not None:
                await part.stop()
        self._broker = self._namesrv = None
        if not self.keeps_store and self.store != Path():
            shutil.rmtree(self.store, ignore_errors=True)


def make_store(given: Path | None) -> Path:
    """The folder to store in, made now if it is not there.

    Raises:
        ConfigError: it cannot be made; the text names it and the cause.
    """
    if given is None:
        return Path(tempfile.mkdtemp(prefix="mqdev-"))
    try:
        given.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"cannot make the folder {given}: {error.strerror}; name another by --store") from error
    return given.absolute()


def namesrv_settings(port: int, store: Path) -> NamesrvSettings:
    """A name server on the loopback address that keeps its state beside the store."""
    config = NamesrvConfig(
        kv_config_path=str(store / "namesrv" / "kvConfig.json"),
        config_store_path=str(store / "namesrv" / "namesrv.properties"),
    )
    return NamesrvSettings(config, TransportConfig(listen_port=port, bind_address=LOOPBACK), None, (), {})


def broker_settings(port: int, store: Path, namesrv_addr: str) -> BrokerSettings:
    """A broker on the loopback address that registers at one name server."""
    return BrokerSettings(
        BrokerConfig(broker_name="broker-a", broker_ip1=LOOPBACK, listen_port=port, namesrv_addr=namesrv_addr),
        MessageStoreConfig(store_path_root_dir=str(store), ha_listen_port=port and port + 1),
        TransportConfig(listen_port=port, bind_address=LOOPBACK),
        None,
        (),
        {},
    )
