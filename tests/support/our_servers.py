"""Our mqnamesrv and mqbroker as real processes for one test, on free ports, with their files in a temporary folder."""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from rocketbroker.client.admin.admin_client import AdminClient
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from tests.support.java_process import JavaServer, wait_registered
from tests.support.ports import LOOPBACK, free_ports
from tests.support.warm_python import is_warm, warm_python

ROOT = Path(__file__).resolve().parents[2]
# INTERNAL_SERVER_ERROR is the name of a status.
_ERROR = re.compile(r"\b(ERROR|CRITICAL)\b|Traceback")
BOOT_LIMIT = 120  # seconds, on a machine that may have other work
BOOTED = "boot success"
PROXY_BOOTED = "rocketmq-proxy startup successfully"
ALL_ADDRESSES = "0.0.0.0"


@dataclass(slots=True)
class OurServer(JavaServer):
    """A process of ours; ``port`` and ``store`` as for Apache's."""

    def rss_bytes(self) -> int:
        """Return its resident memory in bytes."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(slots=True)
class OurServers:
    """Starts servers with settings, stores and logs in ``home``; clients reach them at ``host``.

    ``runner`` goes before each command line.
    """

    home: Path
    host: str = LOOPBACK
    runner: Sequence[str] = ()
    started: list[OurServer] = field(default_factory=list)

    @property
    def _bound(self) -> str:
        """The address to listen on; all, where others than this machine are to connect."""
        return LOOPBACK if self.host == LOOPBACK else ALL_ADDRESSES

    def command(self, module: str, *arguments: str) -> list[str]:
        """Return the command line of one of our programs, such as ``app.broker_startup``."""
        return [sys.executable, "-P", "-m", f"rocketbroker.{module}", *arguments]

    def environment(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT / "src"), "HOME": str(self.home), "NAMESRV_ADDR": ""}

    def settings_file(self, name: str, settings: dict[str, str | int]) -> Path:
        path = self.home / f"{name}-{len(self.started)}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def namesrv(self, port: int = 0, /, **settings: str | int) -> OurServer:
        """Start mqnamesrv, on a free port without a given one; it listens when this returns."""
        port = port or free_ports()
        given = {
            "listenPort": port,
            "bindAddress": self._bound,
            "kvConfigPath": f"{self.home}/kvConfig.json",
            **settings,
        }
        server = self._launch("namesrv", port, given, "app.namesrv_startup")
        server.wait_for(BOOTED, BOOT_LIMIT)
        return server

    def broker(self, namesrv: str, store: Path | None = None, **settings: str | int) -> OurServer:
        """Start mqbroker; it is registered at ``namesrv`` ("host:port;host:port") when this returns."""
        server = self.launch_broker(namesrv, store, settings)
        wait_serving(server, namesrv)
        return server

    def launch_broker(
        self,
        namesrv: str,
        store: Path | None,
        settings: Mapping[str, str | int],
        port: int = 0,
        runner: Sequence[str] = (),
        module: str = "app.broker_startup",
        arguments: Sequence[str] = (),
    ) -> OurServer:
        """Start mqbroker and return at once; ``runner`` goes before its command line, port 0 takes a free one."""
        port = port or free_ports(-2, 1)  # the VIP port and the HA port
        store = store or self.home / f"store-{port}"
        given: dict[str, str | int] = {
            "brokerClusterName": "DefaultCluster", "brokerName": "broker-a", "brokerId": 0, "brokerIP1": self.host,
            "brokerIP2": self.host,
            "bindAddress": self._bound, "listenPort": port, "namesrvAddr": namesrv, "storePathRootDir": str(store),
            "mappedFileSizeCommitLog": 16 << 20, "maxHashSlotNum": 50_000, "maxIndexNum": 200_000, **settings,
        }  # fmt: skip
        server = self._launch("broker", port, given, module, arguments, runner)
        server.store = store
        return server

    def proxy(self, *arguments: str, port: int = 0, **settings: str | int) -> OurServer:
        """Start mqproxy with an rmq-proxy.json and arguments; it serves when this returns. Port 0 takes a free one."""
        port = port or free_ports()
        conf = self.home / f"proxy-{len(self.started)}.json"
        conf.write_text(json.dumps({"grpcServerPort": port, "localServeAddr": self.host, **settings}))
        command = self.command("app.proxy_startup", "-pc", str(conf), *arguments)
        server = self._open("proxy", port, [*self.runner, *command])
        server.wait_for(PROXY_BOOTED, BOOT_LIMIT)
        return server

    def _launch(
        self,
        name: str,
        port: int,
        settings: dict[str, str | int],
        module: str,
        arguments: Sequence[str] = (),
        runner: Sequence[str] = (),
    ) -> OurServer:
        path = self.settings_file(name, settings)
        command = [*self.runner, *runner, *self.command(module, "-c", str(path), *arguments)]
        # Launchers of the testing kit read commands.
        return self._open(name, port, command, subprocess.PIPE if module.startswith("testing.") else None)

    def _open(self, name: str, port: int, command: list[str], stdin: int | None = None) -> OurServer:
        log = self.home / f"{name}-{len(self.started)}.out"
        with log.open("wb") as out:
            if is_warm(command):
                process: subprocess.Popen[bytes] = warm_python().start(command, self.home, self.environment(), out)
            else:
                process = subprocess.Popen(
                    command,
                    stdin=stdin,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    cwd=self.home,
                    env=self.environment(),
                )
        server = OurServer(f"mq{name}", process, log, port=port, host=self.host)
        self.started.append(server)
        return server

    def close(self) -> None:
        """Stop all running servers and print their output, which pytest shows for failed tests."""
        for server in self.started:
            server.kill()
            if server.process.stdin:
                server.process.stdin.close()
            print(f"----- {server.name} {server.address} -----\n{server.text()[-8000:]}")

    def errors(self) -> list[str]:
        """Return the lines of the logs that no healthy server writes."""
        return [line for server in self.started for line in server.lines() if _ERROR.search(line)]


def wait_serving(broker: OurServer, namesrv: str) -> None:
    """Wait until a launched broker serves and is registered at the name servers."""
    broker.wait_for(BOOTED, BOOT_LIMIT)
    wait_registered(broker.address, namesrv, BOOT_LIMIT)


def launch_serving(
    servers: "OurServers", namesrv: OurServer, settings: Mapping[str, str | int], old: OurServer | None = None
) -> OurServer:
    """Launch a broker and wait until it serves; one in place of ``old`` has its store and port."""
    broker = servers.launch_broker(namesrv.address, old.store if old else None, settings, port=old.port if old else 0)
    wait_serving(broker, namesrv.address)
    return broker


class Cluster(NamedTuple):
    """One name server and one broker of ours."""

    namesrv: OurServer
    broker: OurServer

    @property
    def address(self) -> str:
        """Address that clients get as namesrvAddr."""
        return self.namesrv.address

    def make_topic(self, topic: str, queues: int = 4) -> None:
        """Make a topic; the name server knows it when this returns."""
        make_topic(self.broker.address, self.address, topic, queues)


def make_topic(broker: str, namesrv: str, topic: str, queues: int = 4, **attributes: str) -> None:
    """Make a topic on the broker at that address; the name server knows it when this returns.

    ``queue_type="BatchCQ"`` sets the attribute ``queue.type``.
    """
    added = {"+" + name.replace("_", "."): value for name, value in attributes.items()}

    async def make() -> None:
        async with AdminClient(namesrv) as admin:
            await admin.create_and_update_topic_config(broker, TopicConfig(topic, queues, queues, attributes=added))
            async with asyncio.timeout(BOOT_LIMIT):
                while topic not in await admin.fetch_all_topic_list():  # noqa: ASYNC110 - another process knows
                    await asyncio.sleep(0.02)

    asyncio.run(make())


def status_bytes(server: OurServer, name: str) -> int:
    """Read a size of a server from the kernel, in bytes: ``VmRSS`` now, ``VmHWM`` at its highest."""
    lines = Path(f"/proc/{server.process.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:")) * 1024


def socket_count(server: OurServer) -> int:
    """Return the number of sockets that a server has open."""
    count = 0
    for each in Path(f"/proc/{server.process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            count += each.readlink().name.startswith("socket:")
    return count


def cpu_seconds(server: OurServer) -> float:
    """Read the CPU time that a server has used, in all of its threads."""
    fields = Path(f"/proc/{server.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
