"""A name server and a broker of either side as processes of their own, on free ports, in a temporary folder."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.report import JAVA, OURS
from tests.support.java_process import LOOPBACK, cluster_info, free_ports
from tests.support.java_toolchain import OPENS, find_tools, jars

_ROOT = Path(__file__).resolve().parent.parent
_START_LIMIT = 60  # seconds
_STOP_LIMIT = 60
_POLL = 0.02
_SHOWN = 3000  # characters of what a server that failed has printed


class ServerError(Exception):
    """A server did not start; the message holds what it printed."""


@dataclass(frozen=True, slots=True)
class Side:
    """How the servers of one side are started; ``{home}`` in a command is their folder.

    The commands replace themselves by the server, so that signals, CPU time and memory are those of the process.
    """

    name: str
    namesrv_command: Sequence[str]
    broker_command: Sequence[str]


@dataclass(frozen=True, slots=True)
class Running:
    """A name server and a broker that are up.

    Attributes:
        namesrv: ``host:port`` for clients.
        broker_pid: the broker's process.
        start_seconds: from starting the broker until the name server told of it.
        home: their folder, where clients log to as well.
    """

    namesrv: str
    broker_pid: int
    start_seconds: float
    home: Path


def java_side(heap: str) -> Side:
    """Apache RocketMQ 5.5.0; ``heap`` is the broker's, as in ``-Xmx``."""

    def command(main: str, size: str) -> list[str]:
        options = [f"-Xms{size}", f"-Xmx{size}", "-XX:+UseG1GC", *OPENS]
        options += ["-Drocketmq.home.dir={home}", "-Duser.home={home}", "-cp", f"{jars('5.5.0')}/*"]
        return [find_tools()["java"], *options, main]

    return Side(
        JAVA,
        command("org.apache.rocketmq.namesrv.NamesrvStartup", "256m"),
        command("org.apache.rocketmq.broker.BrokerStartup", heap),
    )


def our_side() -> Side:
    """The servers of this checkout."""
    return Side(OURS, [str(_ROOT / "bin" / "mqnamesrv")], [str(_ROOT / "bin" / "mqbroker")])


@contextmanager
def running(side: Side, folder: Path | None, properties: Sequence[str]) -> Iterator[Running]:
    """Start both servers with an empty store and end them, and their files, afterwards.

    Args:
        folder: where the temporary folder is made, the system's choice by default.
        properties: ``key=value`` lines for the broker.

    Raises:
        ServerError: one of them did not come up.
    """
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix=f"rocketbroker-bench-{side.name}-", dir=folder))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        namesrv_port = free_ports()
        namesrv = f"{LOOPBACK}:{namesrv_port}"
        settings = [f"listenPort={namesrv_port}", f"bindAddress={LOOPBACK}", f"kvConfigPath={home}/kvConfig.json"]
        process = stack.enter_context(_server(side.namesrv_command, "namesrv", home, settings))
        _wait_until(lambda: _listens(namesrv_port), process, home / "namesrv.out")
        broker_port = free_ports(-2, 1)  # the VIP port, and the one for replicas
        settings = _broker_settings(home, broker_port, namesrv)
        begun = time.monotonic()
        process = stack.enter_context(_server(side.broker_command, "broker", home, [*settings, *properties]))
        address = f'"{LOOPBACK}:{broker_port}"'
        _wait_until(lambda: address in cluster_info(namesrv), process, home / "broker.out")
        yield Running(namesrv, process.pid, time.monotonic() - begun, home)


def _broker_settings(home: Path, port: int, namesrv: str) -> list[str]:
    return [
        "brokerClusterName=DefaultCluster",
        "brokerName=broker-a",
        "brokerId=0",
        "brokerRole=ASYNC_MASTER",
        "flushDiskType=ASYNC_FLUSH",
        "autoCreateTopicEnable=true",
        "defaultTopicQueueNums=8",
        f"brokerIP1={LOOPBACK}",
        f"bindAddress={LOOPBACK}",
        f"listenPort={port}",
        f"namesrvAddr={namesrv}",
        f"storePathRootDir={home}/store",
        f"storePathCommitLog={home}/store/commitlog",
    ]


@contextmanager
def _server(
    command: Sequence[str], name: str, home: Path, settings: Sequence[str]
) -> Iterator[subprocess.Popen[bytes]]:
    conf = home / f"{name}.properties"
    conf.write_text("".join(f"{line}\n" for line in settings))
    filled = [word.replace("{home}", str(home)) for word in command]
    environment = {**os.environ, "ROCKETMQ_HOME": str(home), "NAMESRV_ADDR": ""}
    with (home / f"{name}.out").open("wb") as out:
        process = subprocess.Popen(
            [*filled, "-c", str(conf)], stdout=out, stderr=subprocess.STDOUT, cwd=home, env=environment
        )
    try:
        yield process
    finally:
        _end(process)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_LIMIT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _START_LIMIT
    while not ready():
        ended = process.poll()
        if ended is not None or time.monotonic() > deadline:
            why = f"ended with {ended}" if ended is not None else f"was not up after {_START_LIMIT} s"
            raise ServerError(f"the {log.stem} {why}:\n{log.read_text(errors='replace')[-_SHOWN:]}")
        time.sleep(_POLL)


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), 0.2).close()
    except OSError:
        return False
    return True
