"""One broker of a DevServer: started, stopped and started again on the same ports."""

import contextlib
import socket
from collections.abc import Callable, Mapping
from pathlib import Path

from rocketbroker.app.broker_controller import BrokerController
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common.config.load import VIP_PORT_DISTANCE, BrokerSettings, broker_settings_of
from rocketbroker.common.config.local_host import LOOPBACK
from rocketbroker.common.config.properties_file import Entry
from rocketbroker.common.errors import ConfigError
from rocketbroker.store.clean.disk_watch import DiskUse
from rocketbroker.store.commitlog.put_message import Refusal
from rocketbroker.transport.listening_sockets import bind_sockets, close_sockets

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
