"""Memory, CPU time and waits of one server with many peers, and rates of several brokers of one command.

    bench/run namesrv_scale [--brokers 1000] [--topics 10000] [--spread 100] [--wide 10] [--rounds 3] [--seconds 4]
    bench/run broker_scale [--connections 5000] [--topics 5000] [--seconds 10] [--wakes 300] [--dir DIR]
    bench/run broker_processes [--brokers 1,2,4] [--rounds 3] [--seconds 4] [--connections 4] [--size 128]

Each peer is a connection of this process, which sends RocketMQ's own requests.
"""

import json
import random
import re
import resource
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated

import typer

from bench.harness import BenchError, Folder, Report, Row, Size, figures_table, temporary
from bench.measure import LoopProbe, anonymous_mib, cost, cpu_seconds, latencies, probing
from bench.servers import OUR_SIDE, Server, accepted, ask_all, broker, brokers, frame, log_end, name_server
from rocketbroker.codec.remoting.bodies.topic_config import TopicConfig
from rocketbroker.codec.remoting.headers.message import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.raw_client import RawClient
from tests.support.raw_requests import consumer_data, pull_fields, send_fields, topic_fields

Figure = tuple[str, str]
_HEARTBEAT_S = 30  # registerNameServerPeriod
_WINDOW = 4  # registrations at a time
_ROUTES = 16  # route requests at a time
_DISTINCT = 2_000  # topics whose routes are asked for: as many as the cache of the name server holds
_NAMESRV_QUEUES = 8
_CHANGES = 20
_BODY = (
    b'{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":%b,"mappingDataVersion":%b,'
    b'"topicConfigTable":{%b},"topicQueueMappingDetailMap":{},"topicQueueMappingInfoMap":{%b}}}'
)
_NOT_ALL = b'"not-all":{"bname":"b","currIdMap":{},"dirty":false,"epoch":0,"totalQueues":0,"topic":"not-all"}'


def _topic(number: int) -> str:
    return f"Topic-{number:06}"


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
    """Connections of the brokers at a name server, and their registrations."""

    def __init__(self, address: str, layout: Layout) -> None:
        self._address = address
        self._topics = [_config(number) for number in range(layout.topics)]
        self._tables = [layout.topics_of(broker) for broker in range(layout.brokers)]
        self.clients: list[RawClient] = []

    @property
    def entries(self) -> int:
        """Number of topics of all brokers."""
        return sum(map(len, self._tables))

    def connect(self, stack: ExitStack) -> None:
        """Open a connection for each broker."""
        self.clients = [stack.enter_context(RawClient(self._address)) for _ in self._tables]

    def _exchange(self, make: Callable[[int], bytes], numbers: Iterable[int]) -> None:
        """Send a request of each broker, some at a time, and wait for the answers."""
        chosen = list(numbers)
        for start in range(0, len(chosen), _WINDOW):
            some = chosen[start : start + _WINDOW]
            for number in some:
                self.clients[number].send(make(number))
            for number in some:
                accepted(self.clients[number].read())

    def register(self, version: int, numbers: Iterable[int] | None = None) -> None:
        """Register all topics of all brokers, or of some."""

        def registration(number: int) -> bytes:
            return _registration(number, version, b",".join([self._topics[each] for each in self._tables[number]]))

        self._exchange(registration, range(len(self._tables)) if numbers is None else numbers)

    def ask_versions(self, version: int) -> None:
        """Send QUERY_DATA_VERSION of all brokers, as those with forceRegister=false do."""

        def question(number: int) -> bytes:
            return frame(RequestCode.QUERY_DATA_VERSION, {**_names(number), "brokerId": 0}, body=_version(version))

        self._exchange(question, range(len(self._tables)))


def _registration(broker: int, version: int, topics: bytes, mappings: bytes = b"") -> bytes:
    body = _BODY % (_version(version), _version(0), topics, mappings)
    crc = zlib.crc32(body) & 0x7FFFFFFF
    others = {"haServerAddr": "127.0.0.1:10912", "brokerId": 0, "compressed": "false", "bodyCrc32": crc}
    return frame(RequestCode.REGISTER_BROKER, {**_names(broker), **others}, body=body)


def _names(broker: int) -> dict[str, object]:
    address = f"10.{broker >> 16}.{broker >> 8 & 255}.{broker & 255}:10911"
    return {"brokerName": f"broker-{broker:05}", "brokerAddr": address, "clusterName": "BenchCluster"}


def _config(number: int, queues: int = _NAMESRV_QUEUES) -> bytes:
    return f'"{_topic(number)}":'.encode() + TopicConfig(_topic(number), queues, queues).encode()


def _version(counter: int) -> bytes:
    return json.dumps({"counter": counter, "stateVersion": 0, "timestamp": 1_700_000_000_000}).encode()


def _route_frame(topic: int) -> bytes:
    return frame(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": _topic(topic), "acceptStandardJsonOnly": "true"})


class NamesrvRun:
    """The phases of a run on one name server, each of which yields figures."""

    def __init__(self, server: Server, probe: LoopProbe, layout: Layout) -> None:
        self._server = server
        self._brokers = Brokers(server.address, layout)
        self._probe = probe
        self._layout = layout
        self._version = 1

    def figures(self, stack: ExitStack, rounds: int, seconds: float) -> Iterator[Figure]:
        """Do all phases; the waits of the probe follow each."""
        layout, pid = self._layout, self._server.pid
        yield "brokers, topics, topics of all", f"{layout.brokers:,}, {layout.topics:,}, {self._brokers.entries:,}"
        yield "memory at the start", f"{anonymous_mib(pid):.1f} MiB"
        phases = (
            self._registrations(stack), self._heartbeats(rounds), self._large_registrations(rounds),
            self._routes(seconds), self._changes(),
        )  # fmt: skip
        for phase in phases:
            for found in phase:
                yield found
                yield "probe", str(self._probe.take())
        yield "memory at the end", f"{anonymous_mib(pid):.1f} MiB"

    def _registrations(self, stack: ExitStack) -> Iterator[Figure]:
        connected = cost(self._server.pid, lambda: self._brokers.connect(stack))
        first = cost(self._server.pid, lambda: self._brokers.register(self._version))
        entries = self._brokers.entries
        yield "memory of a connection", f"{connected.mib * 1024 / self._layout.brokers:.1f} KiB"
        yield "memory of a topic of a broker", f"{first.mib * (1 << 20) / entries:.0f} B"
        yield (
            "first registrations",
            f"{first.seconds:.1f} s, CPU {first.cpu:.2f} s, {first.cpu / entries * 1e6:.2f} µs a topic",
        )

    def _heartbeats(self, rounds: int) -> Iterator[Figure]:
        for name, work in (
            ("the same registrations again", self._brokers.register),
            ("QUERY_DATA_VERSION instead (forceRegister=false)", self._brokers.ask_versions),
        ):
            cpu = min(cost(self._server.pid, lambda work=work: work(self._version)).cpu for _ in range(rounds))  # type: ignore[misc]
            yield name, f"CPU {cpu:.2f} s, {cpu / _HEARTBEAT_S * 100:.1f} % of a core every {_HEARTBEAT_S} s"

    def _large_registrations(self, rounds: int) -> Iterator[Figure]:
        """Register the broker that has all topics, each time with another version."""

        def register() -> None:
            self._version += 1
            self._brokers.register(self._version, [0])

        costs = [cost(self._server.pid, register) for _ in range(rounds * 2)]
        cpu, loop = min(each.cpu for each in costs), min(each.loop for each in costs)
        text = f"CPU {cpu * 1000:.0f} ms, {loop * 1000:.1f} ms of them on the event loop"
        yield f"a changed registration of {self._layout.topics:,} topics", text

    def _routes(self, seconds: float) -> Iterator[Figure]:
        """Ask for routes that are not encoded yet, and again."""
        wide = list(range(self._layout.wide))
        spread = list(range(self._layout.wide, min(self._layout.wide + _DISTINCT, self._layout.topics)))
        for topics, count in ((spread, self._layout.spread), (wide, self._layout.brokers)):
            with RawClient(self._server.address) as client:
                size = len(ask_all(client, [_route_frame(topics[0])])[0].body)
                first = cost(self._server.pid, lambda: ask_all(client, list(map(_route_frame, topics[1:])), 1))  # noqa: B023 - called here
                each = first.loop / max(len(topics) - 1, 1)
                yield f"first route of a topic on {count:,} brokers", f"{each * 1e6:,.0f} µs of CPU, {size:,} bytes"
                again = []
                end = time.monotonic() + seconds
                while time.monotonic() < end:
                    random.shuffle(topics)
                    frames = list(map(_route_frame, topics))
                    again.append(cost(self._server.pid, lambda: ask_all(client, frames, _ROUTES)))  # noqa: B023 - called here
                rate, cpu = len(topics) / min(each.seconds for each in again), min(each.loop for each in again)
                yield "the same again", f"{rate:,.0f} answers/s, {cpu / len(topics) * 1e6:,.0f} µs of CPU each"

    def _changes(self) -> Iterator[Figure]:
        """Change topics one by one, as our brokers do, and ask for their routes until they have changed."""
        waits = []
        with RawClient(self._server.address) as client:
            for number in range(_CHANGES):
                topic = number % self._layout.topics
                route = [_route_frame(topic)]
                before = seen = ask_all(client, route)[0].body
                self._version += 1
                begun = time.monotonic()
                text = _config(topic, _NAMESRV_QUEUES + 1 + number)
                self._brokers.clients[0].send(_registration(0, self._version, text, _NOT_ALL))
                while seen == before:
                    seen = ask_all(client, route)[0].body
                waits.append(time.monotonic() - begun)
                accepted(self._brokers.clients[0].read())
        yield "a changed topic is in its route after", f"{min(waits) * 1000:.1f} to {max(waits) * 1000:.1f} ms"


def namesrv_scale(
    brokers: Annotated[int, typer.Option(min=1, help="Brokers, one connection each.")] = 1_000,
    topics: Annotated[int, typer.Option(min=1, help="Topics.")] = 10_000,
    spread: Annotated[int, typer.Option(min=1, help="Brokers of each topic.")] = 100,
    wide: Annotated[int, typer.Option(min=1, help="Topics on all brokers.")] = 10,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of heartbeats; the least counts.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of route requests.")] = 4,
) -> None:
    """Print memory, CPU time and waits of a name server with many brokers."""
    limits = [f"maxBrokers={brokers + 1}", "maxTopicQueueEntries=10000000"]
    _raise_open_files(brokers)
    with ExitStack() as stack:
        server = stack.enter_context(name_server(OUR_SIDE, stack.enter_context(temporary()), limits))
        probe = stack.enter_context(probing(server.address, server.pid, _route_frame(topics)))
        run = NamesrvRun(server, probe, Layout(brokers, topics, spread, wide))
        figures_table(run.figures(stack, rounds, seconds))


_QUEUES = 4
_SETTLE_S = 1.0
_SUSPEND_MS = 600_000
_SPARE_FILES = 256


def _raise_open_files(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise BenchError(
            f"{connections:,} connections need {wanted:,} open files, and the limit is {hard:,} (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def _topic_frame(topic: int) -> bytes:
    queues = {"readQueueNums": _QUEUES, "writeQueueNums": _QUEUES}
    return frame(RequestCode.UPDATE_AND_CREATE_TOPIC, {**topic_fields(_topic(topic)), **queues})


def _send_frame(topic: int, queue: int) -> bytes:
    return frame(RequestCode.SEND_MESSAGE_V2, send_fields(_topic(topic), d=_QUEUES, e=queue), body=b"x" * 128)


def _group_frame(group: int) -> bytes:
    body = json.dumps({"groupName": f"Group-{group:06}"}).encode()
    return frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body=body)


def _heartbeat_frame(client: int) -> bytes:
    consumer = consumer_data(f"Group-{client:06}")
    data = {"clientID": f"client-{client}", "producerDataSet": [], "consumerDataSet": [consumer]}
    return frame(RequestCode.HEART_BEAT, {}, body=json.dumps(data).encode())


def _commit_frame(group: int, topic: int, queue: int) -> bytes:
    fields = {"consumerGroup": f"Group-{group:06}", "topic": _topic(topic), "queueId": queue, "commitOffset": 1}
    return frame(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def _pull_frame(group: int, topic: int, queue: int, offset: int) -> bytes:
    """Return PULL_MESSAGE that the broker holds."""
    held = {"sysFlag": FLAG_SUBSCRIPTION | FLAG_SUSPEND, "suspendTimeoutMillis": _SUSPEND_MS}
    fields = pull_fields(_topic(topic), offset, consumerGroup=f"Group-{group:06}", queueId=queue, **held)
    return frame(RequestCode.PULL_MESSAGE, fields, topic * _QUEUES + queue + 2)


class BrokerRun:
    """The steps of a run on one broker; each tells the cost of the things that it makes."""

    def __init__(self, server: Server, connections: int, topics: int) -> None:
        self._server = server
        self._connections = connections
        self._topics = topics
        self._clients: list[RawClient] = []

    def figures(self, stack: ExitStack, seconds: float, wakes: int) -> Iterator[Figure]:
        """Do all steps."""
        client, pid = stack.enter_context(RawClient(self._server.address)), self._server.pid
        topics, members = range(self._topics), range(self._connections)
        queues = [(topic, queue) for topic in topics for queue in range(_QUEUES)]
        sends = [_send_frame(topic, queue) for topic, queue in queues]
        first = [_topic_frame(self._topics), *(_send_frame(self._topics, queue) for queue in range(_QUEUES))]
        ask_all(client, first)

        def idle() -> str:
            return f"{cost(pid, lambda: time.sleep(seconds)).cpu / seconds * 100:.1f} % of a core"

        def connect() -> None:
            self._clients += [stack.enter_context(RawClient(self._server.address)) for _ in members]

        steps: tuple[tuple[str, int, Callable[[], object]], ...] = (
            ("topics", len(topics), lambda: ask_all(client, list(map(_topic_frame, topics)))),
            ("queues, with a message each", len(queues), lambda: ask_all(client, sends)),
            ("consumer groups", len(members), lambda: ask_all(client, list(map(_group_frame, members)))),
            ("connections", len(members), connect),
            ("consumers in a group", len(members), self._join),
            ("committed offsets", len(queues), lambda: self._commit(queues)),
            ("held pulls", len(queues), lambda: self._pull(queues)),
        )
        yield "memory at the start", f"{anonymous_mib(pid):.1f} MiB"
        yield "idle CPU at the start", idle()
        for name, count, work in steps:
            found = cost(pid, work, _SETTLE_S)
            each = f"{found.mib * (1 << 20) / count:,.0f} B and {found.cpu / count * 1e6:,.0f} µs of CPU each"
            yield f"{name}, {count:,}", f"{each}, {found.seconds:.1f} s"
        yield "idle CPU with all of them", idle()
        yield "a held pull is answered after", self._wake(client, queues, wakes)
        yield "memory at the end", f"{anonymous_mib(pid):.1f} MiB"

    def _join(self) -> None:
        for number, client in enumerate(self._clients):
            client.send(_heartbeat_frame(number))
        for client in self._clients:
            accepted(client.answer(1))

    def _commit(self, queues: Sequence[tuple[int, int]]) -> None:
        for topic, queue in queues:
            member = topic % self._connections
            self._clients[member].send(_commit_frame(member, topic, queue))
        for topic, _ in queues:
            accepted(self._clients[topic % self._connections].answer(1))

    def _pull(self, queues: Sequence[tuple[int, int]]) -> None:
        for topic, queue in queues:
            member = topic % self._connections
            self._clients[member].send(_pull_frame(member, topic, queue, 1))
        # The broker has read all pulls once it has answered a later request of each connection.
        self._join()

    def _wake(self, sender: RawClient, queues: Sequence[tuple[int, int]], count: int) -> str:
        waits, ends = [], dict.fromkeys(queues, 1)
        for topic, queue in random.choices(queues, k=count):
            member = topic % self._connections
            begun = time.monotonic()
            sender.send(_send_frame(topic, queue))
            answer = self._clients[member].answer(topic * _QUEUES + queue + 2)
            waits.append(time.monotonic() - begun)
            accepted(answer)
            accepted(sender.answer(1))
            ends[topic, queue] += 1
            self._clients[member].send(_pull_frame(member, topic, queue, ends[topic, queue]))
        return f"least {min(waits) * 1e3:.2f} ms, {latencies(waits)} from before the send"


def broker_scale(
    connections: Annotated[int, typer.Option(min=1, help="Connections, one consumer each.")] = 5_000,
    topics: Annotated[int, typer.Option(min=1, help="Topics of four queues.")] = 5_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of the idle broker.")] = 10,
    wakes: Annotated[int, typer.Option(min=1, help="Messages that wake a held pull.")] = 300,
    folder: Folder = None,
) -> None:
    """Print memory, idle CPU and wake-up times of a broker with many connections, queues and held pulls."""
    _raise_open_files(connections)
    with ExitStack() as stack:
        server = stack.enter_context(broker(stack.enter_context(temporary(folder)), ["maxConnections=100000"]))
        figures_table(BrokerRun(server, connections, topics).figures(stack, seconds, wakes))


_IN_FLIGHT = 64
_SENT_QUEUES = 8
_WARM_S = 1.0
_READ = 1 << 18
_OK, _NOT_OK = b'"code":0', re.compile(rb'"code":[^0]').search
_RATES = {
    "rate": ("messages/s", ",.0f"),
    "cpu": ("CPU, µs a message", ".1f"),
    "cores": ("cores busy with brokers", ".2f"),
    "stored": ("bytes of log a message", ".0f"),
}


class Sender:
    """One connection that sends until it is stopped, 64 requests at a time that are built once; ``sent`` counts."""

    def __init__(self, address: str, number: int, size: int) -> None:
        self._address = address
        fields = [send_fields(f"Topic-{number}", d=_SENT_QUEUES, e=each % _SENT_QUEUES) for each in range(_IN_FLIGHT)]
        self._frames = b"".join(frame(RequestCode.SEND_MESSAGE_V2, each, body=b"x" * size) for each in fields)
        self.sent = 0

    def run(self, stopped: threading.Event) -> None:
        """Send; raise ``BenchError`` if the broker rejects a message or closes the connection."""
        host, _, port = self._address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            while not stopped.is_set():
                connection.sendall(self._frames)
                count_answers(connection)
                self.sent += _IN_FLIGHT


def count_answers(connection: socket.socket) -> None:
    """Read the answers to all requests in flight without decoding them."""
    data = b""
    while data.count(_OK) < _IN_FLIGHT:
        read = connection.recv(_READ)
        data += read
        if not read:
            raise BenchError("the broker closed the connection")
        if _NOT_OK(data):
            raise BenchError(f"the broker rejected a message: {data[:500]!r}")


def send_rate(addresses: Sequence[str], pid: int, connections: int, size: int, seconds: float) -> dict[str, float]:
    """Send to all brokers, whose processes ``pid`` supervises, and return the figures."""
    senders = [Sender(addresses[number % len(addresses)], number, size) for number in range(connections)]
    stopped = threading.Event()
    with ThreadPoolExecutor(connections) as threads:
        running = [threads.submit(sender.run, stopped) for sender in senders]
        try:
            time.sleep(_WARM_S)
            sent, cpu, begun = sum(each.sent for each in senders), cpu_seconds(pid), time.monotonic()
            time.sleep(seconds)
            took, cpu, sent = time.monotonic() - begun, cpu_seconds(pid) - cpu, sum(s.sent for s in senders) - sent
        finally:
            stopped.set()
        for each in running:
            each.result()
    stored = sum(map(log_end, addresses)) / sum(sender.sent for sender in senders)
    return {"rate": sent / took, "cpu": cpu / max(sent, 1) * 1e6, "cores": cpu / took, "stored": stored}


def broker_processes(
    brokers_: Annotated[str, typer.Option("--brokers", metavar="A,B", help="Numbers of broker processes.")] = "1,2,4",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the figures are their medians.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of each load, after a second of warm-up.")] = 4,
    connections: Annotated[int, typer.Option(min=1, help="Connections, shared between the brokers.")] = 4,
    size: Size = 128,
) -> None:
    """Print rate and CPU time of sends to one, two and four brokers."""
    report = Report(rounds, seconds=seconds, connections=connections, size=size)
    for number in range(1, rounds + 1):
        for count in map(int, brokers_.split(",")):
            with temporary() as home, brokers(home, count) as (addresses, pid):
                found = send_rate(addresses, pid, max(connections, count), size, seconds)
            report.add(Row(number, str(count), "send", found))
    print("\n" + report.table(["brokers"], _RATES))
    report.end()
