"""One name server with 1,000 brokers and 10,000 topics: memory, CPU time, routes a second, holds of its event loop.

    bench/run namesrv_scale [--brokers 1000] [--topics 10000] [--spread 100] [--wide 10] [--rounds 3] [--seconds 4]

Each broker is a connection of this process, which sends RocketMQ's own requests. Each topic is on ``--spread`` brokers,
``--wide`` of them are on all, and the first broker has all topics. Brokers register every 30 s: here one registration
follows the other, and the share of a core is computed from their CPU time.
"""

import itertools
import json
import random
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.harness import BenchError, commit
from bench.measure import LoopProbe, anonymous_mib, cpu_seconds, loop_seconds, probing
from bench.raw_load import frame
from bench.servers import Server, name_server, our_side
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.raw_client import RawAnswer, RawClient

_HEARTBEAT_S = 30  # registerNameServerPeriod
_WINDOW = 4  # registrations at a time
_ROUTES = 16  # route requests at a time
_DISTINCT = 2_000  # topics whose routes are asked for: as many as the cache of the name server holds
_QUEUES = 8
_CHANGES = 20
_CLUSTER = "BenchCluster"
_BODY = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":%b,"mappingDataVersion":%b,'
    b'"topicConfigTable":{%b},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{%b}}}'
)
_NOT_ALL = b'"not-all":{"bname":"b","currIdMap":{},"dirty":false,"epoch":0,"totalQueues":0,"topic":"not-all"}'

Figure = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Layout:
    """Topics of each broker."""

    brokers: int
    topics: int
    spread: int
    wide: int

    def topics_of(self, broker: int) -> list[int]:
        """Return the topics of a broker; the first ``wide`` are on all brokers, and broker 0 has all."""
        step = max(self.brokers // self.spread, 1)
        return [topic for topic in range(self.topics) if not broker or topic < self.wide or not (topic - broker) % step]


class Brokers:
    """Connections of the brokers, and their registrations."""

    def __init__(self, address: str, layout: Layout) -> None:
        self._layout = layout
        self._address = address
        self._topics = [f'"{_topic(number)}":'.encode() + _config(number).encode() for number in range(layout.topics)]
        self._tables = [layout.topics_of(broker) for broker in range(layout.brokers)]
        self._clients: list[RawClient] = []

    @property
    def entries(self) -> int:
        """Number of topics of all brokers."""
        return sum(map(len, self._tables))

    def connect(self, stack: ExitStack) -> None:
        """Open a connection for each broker."""
        self._clients = [stack.enter_context(RawClient(self._address)) for _ in self._tables]

    def register(self, version: int, numbers: Iterable[int] | None = None) -> None:
        """Register all topics of all brokers, or of some."""
        chosen = range(len(self._tables)) if numbers is None else numbers
        for some in _batched(chosen, _WINDOW):
            for broker in some:
                self._clients[broker].send(self.registration(broker, version))
            for broker in some:
                _accepted(self._clients[broker].read())

    def registration(self, broker: int, version: int) -> bytes:
        """Return REGISTER_BROKER with all topics."""
        topics = b",".join([self._topics[number] for number in self._tables[broker]])
        return self._registration(broker, version, topics, b"")

    def change(self, broker: int, version: int, topic: int, queues: int) -> None:
        """Send a registration of one changed topic, as our brokers do."""
        text = f'"{_topic(topic)}":'.encode() + _config(topic, queues).encode()
        self._clients[broker].send(self._registration(broker, version, text, _NOT_ALL))

    def changed(self, broker: int) -> None:
        """Wait for the answer to ``change``."""
        _accepted(self._clients[broker].read())

    def ask_versions(self, version: int) -> None:
        """Send QUERY_DATA_VERSION of all brokers, as those with forceRegister=false do."""
        for some in _batched(range(len(self._tables)), _WINDOW):
            for broker in some:
                fields = {**_names(broker), "brokerId": 0}
                self._clients[broker].send(frame(RequestCode.QUERY_DATA_VERSION, fields, body=_version(version)))
            for broker in some:
                _accepted(self._clients[broker].read())

    @staticmethod
    def _registration(broker: int, version: int, topics: bytes, mappings: bytes) -> bytes:
        body = _BODY % (_version(version), _version(0), topics, mappings)
        crc = zlib.crc32(body) & 0x7FFFFFFF
        others = {"haServerAddr": "127.0.0.1:10912", "brokerId": 0, "compressed": "false", "bodyCrc32": crc}
        return frame(RequestCode.REGISTER_BROKER, {**_names(broker), **others}, body=body)


def _names(broker: int) -> dict[str, object]:
    address = f"10.{broker >> 16}.{broker >> 8 & 255}.{broker & 255}:10911"
    return {"brokerName": f"broker-{broker:05}", "brokerAddr": address, "clusterName": _CLUSTER}


def _topic(number: int) -> str:
    return f"Topic-{number:06}"


def _config(number: int, queues: int = _QUEUES) -> TopicConfig:
    return TopicConfig(_topic(number), queues, queues)


def _version(counter: int) -> bytes:
    return json.dumps({"counter": counter, "stateVersion": 0, "timestamp": 1_700_000_000_000}).encode()


def _accepted(answer: RawAnswer | None) -> RawAnswer:
    if answer is None:
        raise BenchError("the name server closed a connection")
    if answer.code != ResponseCode.SUCCESS:
        raise BenchError(f"the name server answered {answer.code}: {answer.remark}")
    return answer


def _batched(numbers: Iterable[int], count: int) -> Iterator[Sequence[int]]:
    iterator = iter(numbers)
    while some := list(itertools.islice(iterator, count)):
        yield some


def _route_frame(topic: int) -> bytes:
    return frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": _topic(topic), "acceptStandardJsonOnly": "true"})


class Run:
    """The phases of a run, each of which returns figures."""

    def __init__(self, server: Server, brokers: Brokers, probe: LoopProbe, layout: Layout) -> None:
        self._server = server
        self._brokers = brokers
        self._probe = probe
        self._layout = layout
        self._version = 1

    def held(self) -> str:
        """Return the waits of the probe since the last phase."""
        waits = self._probe.take()
        return (
            f"probe: p50 {waits.p50 * 1000:.1f}, p99 {waits.p99 * 1000:.1f}, longest {waits.longest * 1000:.1f} ms; "
            f"longest hold by CPU time {waits.held * 1000:.1f} ms"
        )

    def registrations(self, stack: ExitStack) -> Iterator[Figure]:
        """Connect and register all brokers."""
        before = anonymous_mib(self._server.pid)
        self._brokers.connect(stack)
        connected = anonymous_mib(self._server.pid)
        begun, cpu = time.monotonic(), cpu_seconds(self._server.pid)
        self._brokers.register(self._version)
        seconds, cpu = time.monotonic() - begun, cpu_seconds(self._server.pid) - cpu
        after = anonymous_mib(self._server.pid)
        entries = self._brokers.entries
        yield "memory at the start", f"{before:.1f} MiB"
        yield "memory of a connection", f"{(connected - before) * 1024 / self._layout.brokers:.1f} KiB"
        yield "memory with all brokers", f"{after:.1f} MiB"
        yield "memory of a topic of a broker", f"{(after - connected) * (1 << 20) / entries:.0f} B"
        yield "first registrations", f"{seconds:.1f} s, CPU {cpu:.2f} s, {cpu / entries * 1e6:.2f} µs a topic"
        yield "", self.held()

    def heartbeats(self, rounds: int) -> Iterator[Figure]:
        """Register all brokers again, and ask for their versions."""
        for name, work in (
            ("the same registrations again", self._brokers.register),
            ("QUERY_DATA_VERSION instead (forceRegister=false)", self._brokers.ask_versions),
        ):
            cpus = []
            for _ in range(rounds):
                cpu = cpu_seconds(self._server.pid)
                work(self._version)
                cpus.append(cpu_seconds(self._server.pid) - cpu)
            yield (
                name,
                f"CPU {min(cpus):.2f} s, {min(cpus) / _HEARTBEAT_S * 100:.1f} % of a core every {_HEARTBEAT_S} s",
            )
            yield "", self.held()

    def large_registrations(self, rounds: int) -> Iterator[Figure]:
        """Register the broker that has all topics, each time with another version."""
        cpus, loops = [], []
        for _ in range(rounds * 2):
            self._version += 1
            cpu, loop = cpu_seconds(self._server.pid), loop_seconds(self._server.pid)
            self._brokers.register(self._version, [0])
            cpus.append(cpu_seconds(self._server.pid) - cpu)
            loops.append(loop_seconds(self._server.pid) - loop)
        text = f"CPU {min(cpus) * 1000:.0f} ms, {min(loops) * 1000:.1f} ms of them on the event loop"
        yield f"a changed registration of {self._layout.topics:,} topics", text
        yield "", self.held()

    def routes(self, seconds: float) -> Iterator[Figure]:
        """Ask for routes that are not encoded yet, and again."""
        wide = list(range(self._layout.wide))
        spread = list(range(self._layout.wide, min(self._layout.wide + _DISTINCT, self._layout.topics)))
        for topics, brokers in ((spread, self._layout.spread), (wide, self._layout.brokers)):
            with RawClient(self._server.address) as client:
                _, cpu, size = self._ask(client, topics, at_once=1)
                yield f"first route of a topic on {brokers:,} brokers", f"{cpu * 1e6:,.0f} µs of CPU, {size:,} bytes"
                yield "", self.held()
                rates, cpus = [], []
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    random.shuffle(topics)
                    rate, cpu, _ = self._ask(client, topics, at_once=_ROUTES)
                    rates.append(rate)
                    cpus.append(cpu)
                yield "the same again", f"{max(rates):,.0f} answers/s, {min(cpus) * 1e6:,.0f} µs of CPU each"
                yield "", self.held()

    def _ask(self, client: RawClient, topics: Sequence[int], at_once: int) -> tuple[float, float, int]:
        """Return answers a second, the event loop's CPU time of each, and the bytes of the last one."""
        size = 0
        begun, cpu = time.monotonic(), loop_seconds(self._server.pid)
        for some in _batched(topics, at_once):
            client.send(b"".join(map(_route_frame, some)))
            for _ in some:
                size = len(_accepted(client.read()).body)
        seconds, cpu = time.monotonic() - begun, loop_seconds(self._server.pid) - cpu
        return len(topics) / seconds, cpu / len(topics), size

    def changes(self) -> Iterator[Figure]:
        """Change topics one by one, and ask for their routes until they have changed."""
        waits = []
        with RawClient(self._server.address) as client:
            for number in range(_CHANGES):
                topic = number % self._layout.topics
                client.send(_route_frame(topic))
                before = _accepted(client.read()).body
                self._version += 1
                begun = time.monotonic()
                self._brokers.change(0, self._version, topic, _QUEUES + 1 + number)
                seen = before
                while seen == before:
                    client.send(_route_frame(topic))
                    seen = _accepted(client.read()).body
                waits.append(time.monotonic() - begun)
                self._brokers.changed(0)
        yield "a changed topic is in its route after", f"{min(waits) * 1000:.1f} to {max(waits) * 1000:.1f} ms"
        yield "", self.held()


def figures(layout: Layout, rounds: int, seconds: float) -> Iterator[Figure]:
    """Run a name server and yield all figures.

    Raises:
        BenchError: it did not start.
        BenchError: it rejected a request.
    """
    limits = [f"maxBrokers={layout.brokers + 1}", "maxTopicQueueEntries=10000000"]
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketbroker-bench-")))
        server = stack.enter_context(name_server(our_side(), home, limits))
        brokers = Brokers(server.address, layout)
        probe = stack.enter_context(probing(server.address, server.pid, _route_frame(layout.topics)))
        run = Run(server, brokers, probe, layout)
        yield "brokers, topics, topics of all brokers", f"{layout.brokers:,}, {layout.topics:,}, {brokers.entries:,}"
        yield from run.registrations(stack)
        yield from run.heartbeats(rounds)
        yield from run.large_registrations(rounds)
        yield from run.routes(seconds)
        yield from run.changes()
        yield "memory at the end", f"{anonymous_mib(server.pid):.1f} MiB"


def namesrv_scale(
    brokers: Annotated[int, typer.Option(min=1, help="Brokers, one connection each.")] = 1_000,
    topics: Annotated[int, typer.Option(min=1, help="Topics.")] = 10_000,
    spread: Annotated[int, typer.Option(min=1, help="Brokers of each topic.")] = 100,
    wide: Annotated[int, typer.Option(min=1, help="Topics on all brokers.")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of heartbeats; the least counts.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of route requests.")] = 4,
) -> None:
    """Print memory, CPU time and waits of a name server with many brokers."""
    print(f"commit {commit()}\n\n| figure | value |\n|---|---|")
    for name, value in figures(Layout(brokers, topics, spread, wide), rounds, seconds):
        print(f"| {name} | {value} |", flush=True)
