"""Name servers and brokers of either side as processes, on free ports, and raw requests to them."""

import json
import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from bench.harness import ROOT, BenchError, temporary
from bench.measure import cpu_seconds
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.java_process import cluster_info
from tests.support.java_toolchain import OPENS, PROXY, find_tools, jars
from tests.support.ports import LOOPBACK, free_ports
from tests.support.raw_client import RawAnswer, RawClient, raw_frame, raw_header

JAVA, OURS = "java", "ours"
_START_LIMIT = 60  # seconds
_PROXY_START_LIMIT = 180
_STOP_LIMIT = 60
_POLL = 0.02
_PORTS = 5  # from one broker to the next: each has a VIP port and an HA port
_SHOWN = 3000  # last characters of the output of a failed server
_SETTINGS = (
    "brokerClusterName=DefaultCluster",
    "brokerName=broker-a",
    "brokerId=0",
    "brokerRole=ASYNC_MASTER",
    "flushDiskType=ASYNC_FLUSH",
    "autoCreateTopicEnable=true",
    "defaultTopicQueueNums=8",
    f"brokerIP1={LOOPBACK}",
    f"bindAddress={LOOPBACK}",
)


@dataclass(frozen=True, slots=True)
class Side:
    """Commands that start the servers of one side; ``{home}`` is replaced by their folder.

    Each command execs the server, so that signals, CPU time and memory belong to that process.
    """

    name: str
    namesrv_command: Sequence[str]
    broker_command: Sequence[str]


OUR_SIDE = Side(OURS, [str(ROOT / "bin" / "mqnamesrv")], [str(ROOT / "bin" / "mqbroker")])


def java_side(heap: str) -> Side:
    """Return the servers of Apache RocketMQ 5.5.0; ``heap`` is the heap of the broker as in ``-Xmx``."""

    def command(main: str, size: str) -> list[str]:
        options = [f"-Xms{size}", f"-Xmx{size}", "-XX:+UseG1GC", *OPENS]
        options += ["-Drocketmq.home.dir={home}", "-Duser.home={home}", "-cp", f"{jars('5.5.0')}/*"]
        return [find_tools()["java"], *options, f"org.apache.rocketmq.{main}"]

    return Side(JAVA, command("namesrv.NamesrvStartup", "256m"), command("broker.BrokerStartup", heap))


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


@dataclass(frozen=True, slots=True)
class Running:
    """A running name server, given by ``host:port``, its broker, and the folder of both."""

    namesrv: str
    broker: Server
    home: Path


@contextmanager
def running(
    side: Side,
    folder: Path | None = None,
    properties: Sequence[str] = (),
    *,
    store: Path | None = None,
    of_both: Sequence[str] = (),
) -> Iterator[Running]:
    """Run both servers, on an empty store by default; remove their files afterwards.

    Args:
        side: the side.
        folder: folder for the files.
        properties: ``key=value`` lines of the broker.
        store: folder of its store.
        of_both: further lines of both servers.

    Raises:
        BenchError: one of them did not start.
    """
    with (
        temporary(folder) as home,
        name_server(side, home, of_both) as namesrv,
        broker(home, [*properties, *of_both], side=side, namesrv=namesrv.address, store=store) as found,
    ):
        yield Running(namesrv.address, found, home)


@contextmanager
def name_server(side: Side, home: Path, properties: Sequence[str] = ()) -> Iterator[Server]:
    """Run the name server of a side; raise ``BenchError`` if it does not start."""
    port = free_ports()
    settings = [f"listenPort={port}", f"bindAddress={LOOPBACK}", f"kvConfigPath={home}/kvConfig.json", *properties]
    with _server([*side.namesrv_command, "-c"], "namesrv", home, settings, port, lambda: _listens(port)) as server:
        yield server


@contextmanager
def broker(
    home: Path,
    properties: Sequence[str] = (),
    *,
    side: Side = OUR_SIDE,
    namesrv: str = "",
    name: str = "broker",
    store: Path | None = None,
    limit: float = _START_LIMIT,
) -> Iterator[Server]:
    """Run a broker until its name server lists it, or without a name server until it answers.

    Args:
        home: folder for its settings and output.
        properties: ``key=value`` lines, which replace the settings of all brokers.
        side: the side whose broker it is.
        namesrv: ``host:port`` of the name server.
        name: name of its files in ``home``.
        store: folder of its store, in ``home`` by default.
        limit: seconds within which it must be ready.

    Raises:
        BenchError: it did not start.
    """
    port = free_ports(-2, 1)  # the VIP port and the HA port
    address = f"{LOOPBACK}:{port}"
    settings = [*_settings(store or home / f"{name}-store", port, namesrv), *properties]
    ready = (lambda: f'"{address}"' in cluster_info(namesrv)) if namesrv else partial(_answers, address)
    with _server([*side.broker_command, "-c"], name, home, settings, port, ready, limit) as server:
        yield server


@contextmanager
def grpc_broker(home: Path, namesrv: str) -> Iterator[tuple[Server, str]]:
    """Run a broker of ours with its gRPC port; yield it and the address of that port.

    Raises:
        BenchError: it did not start.
    """
    port = free_ports()
    settings = [f"grpcServerPort={port}", "grpcServerEnable=true"]
    with broker(home, settings, namesrv=namesrv) as server:
        yield server, f"{LOOPBACK}:{port}"


@contextmanager
def apache_proxy(home: Path, heap: str, namesrv: str) -> Iterator[tuple[Server, str]]:
    """Run Apache's proxy 5.5.0 in LOCAL mode, with the broker in it; yield that and the address of its gRPC port.

    Raises:
        BenchError: it did not start.
    """
    port = free_ports(-2, 1, 2, 3)  # the VIP port, the HA port, gRPC, remoting of the proxy
    address, grpc = f"{LOOPBACK}:{port}", f"{LOOPBACK}:{port + 2}"
    conf = home / "proxy.json"
    conf.write_text(
        json.dumps({"grpcServerPort": port + 2, "remotingListenPort": port + 3, "localServeAddr": LOOPBACK})
    )
    options = [f"-Xms{heap}", f"-Xmx{heap}", "-XX:+UseG1GC", *OPENS, "-DRMQ_PROXY_HOME={home}", "-Duser.home={home}"]
    command = [find_tools()["java"], *options, "-cp", f"{jars(PROXY)}/*", "org.apache.rocketmq.proxy.ProxyStartup"]
    command += ["-pm", "local", "-n", namesrv, "-pc", str(conf), "-bc"]
    settings = _settings(home / "proxy-store", port, namesrv)

    def ready() -> bool:
        return f'"{address}"' in cluster_info(namesrv) and _listens(port + 2)

    with _server(command, "proxy", home, settings, port, ready, _PROXY_START_LIMIT) as server:
        yield server, grpc


@contextmanager
def brokers(home: Path, count: int) -> Iterator[tuple[list[str], int]]:
    """Run brokers of ours on empty stores (``mqbroker -c a -c b``); yield their addresses and the process of all.

    Raises:
        BenchError: they did not start.
    """
    distances = range(0, count * _PORTS, _PORTS)
    first = free_ports(*(distance + port for distance in distances for port in (-2, 0, 1) if distance + port))
    ports = [first + distance for distance in distances]
    command = [*OUR_SIDE.broker_command]
    for number, port in enumerate(ports[1:], 1):
        path = home / f"broker-{number}.properties"
        settings = [*_settings(home / f"store-{number}", port, ""), f"brokerName=broker-{number}"]
        path.write_text("\n".join(settings))
        command += ["-c", str(path)]
    addresses = [f"{LOOPBACK}:{port}" for port in ports]
    settings = _settings(home / "store", first, "")
    with _server([*command, "-c"], "broker", home, settings, first, lambda: all(map(_answers, addresses))) as server:
        yield addresses, server.pid


def _settings(store: Path, port: int, namesrv: str) -> list[str]:
    places = [f"namesrvAddr={namesrv}", f"storePathRootDir={store}", f"storePathCommitLog={store}/commitlog"]
    return [*_SETTINGS, f"listenPort={port}", f"haListenPort={port + 1}", *places]


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
    """Start a server, yield it once it is ready, and end it; its command ends where the file of settings follows."""
    conf, log = home / f"{name}.properties", home / f"{name}.out"
    conf.write_text("".join(f"{line}\n" for line in settings))
    filled = [word.replace("{home}", str(home)) for word in command]
    environment = {**os.environ, "ROCKETMQ_HOME": str(home), "NAMESRV_ADDR": ""}
    begun = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen(
            [*filled, str(conf)], stdout=out, stderr=subprocess.STDOUT, cwd=home, env=environment
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


def frame(code: RequestCode, fields: Mapping[str, object], opaque: int = 1, body: bytes = b"") -> bytes:
    """Return a request as bytes."""
    return raw_frame(raw_header(code, {name: str(value) for name, value in fields.items()}, opaque), body)


def accepted(answer: RawAnswer | None) -> RawAnswer:
    """Return an answer that is a success.

    Raises:
        BenchError: it is an error, or the server closed the connection.
    """
    if answer is None:
        raise BenchError("the server closed the connection")
    if answer.code != ResponseCode.SUCCESS:
        raise BenchError(f"the server answered {answer.code}: {answer.remark}")
    return answer


def ask(address: str, code: RequestCode, fields: Mapping[str, object] | None = None, body: bytes = b"") -> RawAnswer:
    """Send one request and wait for its answer; raise ``BenchError`` if that is not a success."""
    with RawClient(address) as client:
        client.send(frame(code, fields or {}, body=body))
        return accepted(client.read())


def ask_all(client: RawClient, frames: Sequence[bytes], at_once: int = 64) -> list[RawAnswer]:
    """Send requests, some at a time; return their answers, or raise ``BenchError`` if one is not a success."""
    answers = []
    for start in range(0, len(frames), at_once):
        some = frames[start : start + at_once]
        client.send(b"".join(some))
        answers += [accepted(client.read()) for _ in some]
    return answers


def runtime_info(address: str) -> dict[str, str]:
    """Return the figures of GET_BROKER_RUNTIME_INFO."""
    found: dict[str, str] = json.loads(ask(address, RequestCode.GET_BROKER_RUNTIME_INFO).body)["table"]
    return found


def log_end(address: str) -> int:
    """Return the CommitLog offset after the last message."""
    return int(runtime_info(address)["commitLogMaxOffset"])
