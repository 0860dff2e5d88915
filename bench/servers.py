"""A name server and a broker of either side as processes, on free ports, in a temporary folder."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.harness import BenchError
from bench.measure import cpu_seconds
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.java_process import cluster_info
from tests.support.java_toolchain import OPENS, find_tools, jars
from tests.support.ports import LOOPBACK, free_ports
from tests.support.raw_client import RawClient

JAVA, OURS = "java", "ours"
_ROOT = Path(__file__).resolve().parent.parent
_START_LIMIT = 60  # seconds
_STOP_LIMIT = 60
_POLL = 0.02
_PORTS = 5  # from one broker to the next: each has a VIP port and an HA port
_SHOWN = 3000  # last characters of the output of a failed server


@dataclass(frozen=True, slots=True)
class Side:
    """Commands that start the servers of one side; ``{home}`` is replaced by their folder.

    Each command execs the server, so that signals, CPU time and memory belong to that process.
    """

    name: str
    namesrv_command: Sequence[str]
    broker_command: Sequence[str]


@dataclass(frozen=True, slots=True)
class Running:
    """A running name server and broker.

    Attributes:
        namesrv: ``host:port`` for clients.
        broker_pid: process id of the broker.
        start_seconds: seconds from starting the broker until the name server lists it.
        home: their folder, also used for client logs.
    """

    namesrv: str
    broker_pid: int
    start_seconds: float
    home: Path


def java_side(heap: str) -> Side:
    """Return the servers of Apache RocketMQ 5.5.0; ``heap`` is the heap of the broker as in ``-Xmx``."""

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
    """Return the servers of this checkout."""
    return Side(OURS, [str(_ROOT / "bin" / "mqnamesrv")], [str(_ROOT / "bin" / "mqbroker")])


@dataclass(frozen=True, slots=True)
class Server:
    """A running server.

    Attributes:
        address: ``host:port`` for requests.
        pid: process id.
        seconds: seconds from its start until it answered, or until its name server listed it.
        cpu_seconds: CPU time used until then.
        out: file with its output.
    """

    address: str
    pid: int
    seconds: float
    cpu_seconds: float
    out: Path


@contextmanager
def name_server(side: Side, home: Path, properties: Sequence[str] = ()) -> Iterator[Server]:
    """Run the name server of a side; raise ``BenchError`` if it does not start."""
    port = free_ports()
    settings = [f"listenPort={port}", f"bindAddress={LOOPBACK}", f"kvConfigPath={home}/kvConfig.json", *properties]
    with _server(side.namesrv_command, "namesrv", home, settings, port, lambda: _listens(port)) as server:
        yield server


@contextmanager
def opened(
    store: Path, home: Path, properties: Sequence[str] = (), *, namesrv: str = "", limit: float = _START_LIMIT
) -> Iterator[Server]:
    """Run our broker on the store in a folder; raise ``BenchError`` if it does not start.

    Args:
        store: ``storePathRootDir``.
        home: folder for its settings and output.
        properties: ``key=value`` lines.
        namesrv: ``host:port`` of a name server; none by default.
        limit: seconds within which it must answer.
    """
    port = free_ports(-2, 1)
    settings = [*_broker_settings(store, port, namesrv), *properties]
    ready = partial(_answers, f"{LOOPBACK}:{port}")
    with _server(our_side().broker_command, "broker", home, settings, port, ready, limit) as server:
        yield server


@contextmanager
def registered(
    side: Side, home: Path, namesrv: str, properties: Sequence[str], *, name: str = "broker", store: str = "store"
) -> Iterator[Server]:
    """Run the broker of a side until a name server lists it; raise ``BenchError`` if it does not start.

    Args:
        home: folder for its settings and output.
        namesrv: ``host:port`` of the name server.
        properties: ``key=value`` lines, which replace the settings of all brokers.
        name: name of its files in ``home``.
        store: folder of its store in ``home``.
    """
    port = free_ports(-2, 1)  # the VIP port and the HA port
    settings = [*_broker_settings(home / store, port, namesrv), f"haListenPort={port + 1}", *properties]
    address = f"{LOOPBACK}:{port}"
    with _server(
        side.broker_command, name, home, settings, port, lambda: f'"{address}"' in cluster_info(namesrv)
    ) as server:
        yield server


@dataclass(frozen=True, slots=True)
class Several:
    """Brokers of one ``mqbroker``: their addresses, and the process that supervises them."""

    addresses: Sequence[str]
    pid: int


@contextmanager
def several(home: Path, count: int) -> Iterator[Several]:
    """Run so many brokers of ours on empty stores: ``mqbroker -c a -c b``; one runs without a supervisor.

    Raises:
        BenchError: they did not start.
    """
    distances = range(0, count * _PORTS, _PORTS)
    first = free_ports(*(distance + port for distance in distances for port in (-2, 0, 1) if distance + port))
    ports = [first + distance for distance in distances]
    for number, port in enumerate(ports[1:], 1):
        settings = [*_broker_settings(home / f"store-{number}", port, ""), f"brokerName=broker-{number}"]
        (home / f"broker-{number}.properties").write_text("".join(f"{line}\n" for line in settings))
    others = [word for number in range(1, count) for word in ("-c", f"{home}/broker-{number}.properties")]
    command = [*our_side().broker_command, *others]
    addresses = [f"{LOOPBACK}:{port}" for port in ports]
    settings = _broker_settings(home / "store", first, "")
    with _server(command, "broker", home, settings, first, lambda: all(map(_answers, addresses))) as server:
        yield Several(addresses, server.pid)


@contextmanager
def running(side: Side, folder: Path | None, properties: Sequence[str]) -> Iterator[Running]:
    """Run both servers on an empty store; remove their files afterwards.

    Args:
        folder: parent of the temporary folder; the system's choice by default.
        properties: ``key=value`` lines of the broker's settings.

    Raises:
        BenchError: one of them did not start.
    """
    with ExitStack() as stack:
        home = Path(tempfile.mkdtemp(prefix=f"rocketbroker-bench-{side.name}-", dir=folder))
        stack.callback(shutil.rmtree, home, ignore_errors=True)
        namesrv = stack.enter_context(name_server(side, home)).address
        broker = stack.enter_context(registered(side, home, namesrv, properties))
        yield Running(namesrv, broker.pid, broker.seconds, home)


def _broker_settings(store: Path, port: int, namesrv: str) -> list[str]:
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
        f"storePathRootDir={store}",
        f"storePathCommitLog={store}/commitlog",
    ]


@contextmanager
def _server(
    command: Sequence[str],
    name: str,
    home: Path,
    settings: Sequence[str],
    port: int,
    ready: Callable[[], bool],
    limit: float = _START_LIMIT,
) -> Iterator[Server]:
    """Start a server, yield it once it is ready, and end it."""
    conf, log = home / f"{name}.properties", home / f"{name}.out"
    conf.write_text("".join(f"{line}\n" for line in settings))
    filled = [word.replace("{home}", str(home)) for word in command]
    environment = {**os.environ, "ROCKETMQ_HOME": str(home), "NAMESRV_ADDR": ""}
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*filled, "-c", str(conf)], stdout=out, stderr=subprocess.STDOUT, cwd=home, env=environment
        )
    try:
        while not ready():
            ended = process.poll()
            if ended is not None or time.monotonic() > begun + limit:
                why = f"ended with exit status {ended}" if ended is not None else f"did not start within {limit:.0f} s"
                raise BenchError(f"the {name} {why}:\n{log.read_text(errors='replace')[-_SHOWN:]}")
            time.sleep(_POLL)
        seconds = time.monotonic() - begun
        yield Server(f"{LOOPBACK}:{port}", process.pid, seconds, cpu_seconds(process.pid), log)
    finally:
        process.terminate()
        try:
            process.wait(_STOP_LIMIT)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _listens(port: int) -> bool:
    try:
        socket.create_connection((LOOPBACK, port), 0.2).close()
    except OSError:
        return False
    return True


def _answers(address: str) -> bool:
    try:
        with RawClient(address) as client:
            return client.ask(RequestCode.GET_BROKER_RUNTIME_INFO).code == ResponseCode.SUCCESS
    except OSError:
        return False
