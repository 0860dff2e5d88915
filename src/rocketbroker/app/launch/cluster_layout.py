"""RocketMQ's cluster layouts on one machine, for ``mqdev --layout``: a name server and its brokers as processes."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from rocketbroker.app.launch.dev_server import StoreFolder, check_not_set
from rocketbroker.app.launch.supervised_processes import Program, SupervisedProcesses
from rocketbroker.app.logging_setup import LEVEL_VARIABLE
from rocketbroker.codec.message.message_id import join_address
from rocketbroker.common.config.hosts import LOOPBACK
from rocketbroker.common.errors import ConfigError

# Distance between the ports of two brokers, which also use the ports 2 below and 1 above.
_PORTS_APART: Final = 20


class Member(NamedTuple):
    """A broker of a layout."""

    name: str
    broker_id: int
    role: str

    @property
    def title(self) -> str:
        """Name of its folder and status line, such as ``broker-a-s``, as the files of ``conf/`` are named."""
        return self.name + ("-s" if self.broker_id else "")


def _pairs(role: str) -> tuple[Member, ...]:
    return tuple(
        Member(name, broker_id, role if not broker_id else "SLAVE")
        for name in ("broker-a", "broker-b")
        for broker_id in (0, 1)
    )


LAYOUTS: Final = {
    "2m-noslave": (Member("broker-a", 0, "ASYNC_MASTER"), Member("broker-b", 0, "ASYNC_MASTER")),
    "2m-2s-async": _pairs("ASYNC_MASTER"),
    "2m-2s-sync": _pairs("SYNC_MASTER"),
}


class ClusterLayout:
    """The processes of a layout.

    Args:
        layout: a key of ``LAYOUTS``.
        namesrv_port: port of the name server; 0 picks a free one.
        broker_port: port of the first broker, each other one 20 higher; 0 picks free ones.
        store: folder for all data; None creates a temporary one.
        host: address to listen on.
        advertise: address that clients connect to.
        properties: settings of all brokers by RocketMQ's names.
        show: takes the status lines.

    Raises:
        ConfigError: The layout is unknown.
    """

    def __init__(  # noqa: PLR0913 - options of mqdev
        self,
        layout: str,
        namesrv_port: int,
        broker_port: int,
        store: Path | None,
        *,
        host: str,
        advertise: str,
        properties: Mapping[str, str],
        show: Callable[[str], None],
    ) -> None:
        if layout not in LAYOUTS:
            raise ConfigError(f"--layout {layout} is unknown; give one of {', '.join(LAYOUTS)}")
        self._members = LAYOUTS[layout]
        self._namesrv_port = namesrv_port
        self._broker_port = broker_port
        self._folder = StoreFolder(store)
        self._host = host
        self._advertise = advertise
        self._properties = properties
        # The advertised address may not lead back here, as from within a container.
        self._members_host = LOOPBACK if host == "0.0.0.0" else host  # noqa: S104
        self._members_namesrv_addr = ""
        # They log to the terminal of the user, who wants to see status lines.
        self.processes = SupervisedProcesses((), show, {LEVEL_VARIABLE: "WARNING"})
        self.namesrv_addr = ""

    @property
    def store(self) -> Path:
        """Folder for all data."""
        return self._folder.path

    async def start(self) -> None:
        """Start the name server, then the brokers, each master before its slave.

        Raises:
            ConfigError: A process does not start, or the folder cannot be created.
        """
        try:
            self._folder.create()
            await self._start_namesrv()
            for number, member in enumerate(self._members):
                await self._start_broker(number, member)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop the brokers, then the name server; remove a temporary store."""
        await self.processes.stop()
        self._folder.remove()

    async def _start_namesrv(self) -> None:
        settings = {
            "listenPort": self._namesrv_port,
            "bindAddress": self._host,
            "kvConfigPath": self.store / "namesrv" / "kvConfig.json",
        }
        path = self._write("namesrv", settings)
        program = Program("namesrv", "rocketbroker.app.namesrv_startup", ("-c", str(path)))
        port = int((await self.processes.add(program)).rpartition(":")[2])
        # If it is started again, it must have the port that all others know.
        self._write("namesrv", {**settings, "listenPort": port})
        self.namesrv_addr = join_address(self._advertise, port)
        self._members_namesrv_addr = join_address(self._members_host, port)

    async def _start_broker(self, number: int, member: Member) -> None:
        given = self._properties
        settings = {
            "brokerName": member.name,
            "brokerId": member.broker_id,
            "brokerRole": member.role,
            "brokerIP1": self._advertise,
            "brokerIP2": self._members_host,
            "bindAddress": self._host,
            "listenPort": self._broker_port and self._broker_port + number * _PORTS_APART,
            "namesrvAddr": self._members_namesrv_addr,
            "storePathRootDir": self.store / member.title,
        }
        check_not_set(settings, given)
        replicas = {"inSyncReplicas": 2} if member.role == "SYNC_MASTER" else {}
        path = self._write(member.title, {**settings, "slaveReadEnable": "true", **replicas, **given})
        await self.processes.add(Program(member.title, "rocketbroker.app.broker_startup", ("-c", str(path))))

    def _write(self, title: str, settings: dict[str, object]) -> Path:
        """Write the settings of a process to a file in its folder, which users may look at."""
        path = self.store / title / f"{title}.properties"
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lines = (f"{name}={value}".replace("\\", r"\\") + "\n" for name, value in settings.items())
            path.write_text("".join(lines))
        except OSError as error:
            raise ConfigError(f"cannot write {path}: {error.strerror}; choose another --store") from error
        return path
