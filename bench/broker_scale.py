"""Many connections at one broker, and several brokers of one command."""

import json
import random
import resource
import socket
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.harness import BenchError, Folder, commit
from bench.measure import anonymous_mib, cpu_seconds, percentile
from bench.raw_load import frame, log_end
from bench.servers import Several, opened, several
from rocketbroker.codec.remoting.headers.message import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.raw_client import RawClient
from tests.support.raw_requests import consumer_data, send_fields, topic_fields

_IN_FLIGHT = 64
_SENT_QUEUES = 8
_WARM_S = 1.0
_LENGTH = 4
_READ = 1 << 18
_OK = b'"code":0'


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages a second of all brokers, µs of CPU a message, cores that they used, and bytes of log a message."""

    messages: float
    cpu: float
    cores: float
    stored: float


class Sender:
    """One connection that sends until it is stopped; ``sent`` counts its answered messages."""

    def __init__(self, address: str, number: int, size: int) -> None:
        self._address = address
        fields = [
            send_fields(f"Topic-{number}", d=str(_SENT_QUEUES), e=str(each % _SENT_QUEUES))
            for each in range(_IN_FLIGHT)
        ]
        self._frames = b"".join(
            frame(RequestCode.SEND_MESSAGE_V2, header, opaque, b"x" * size) for opaque, header in enumerate(fields, 1)
        )
        self.sent = 0

    def run(self, stopped: threading.Event) -> None:
        """Send.

        Raises:
            BenchError: the broker rejected a message or closed the connection.
        """
        host, _, port = self._address.rpartition(":")
        with socket.create_connection((host, int(port)), timeout=30) as connection:
            while not stopped.is_set():
                connection.sendall(self._frames)
                self._count(connection)
                self.sent += _IN_FLIGHT

    @staticmethod
    def _count(connection: socket.socket) -> None:
        """Read the answers to all frames."""
        data, at, count = b"", 0, _IN_FLIGHT
        while count:
            read = connection.recv(_READ)
            if not read:
                raise BenchError("the broker closed the connection")
            data += read
            while at + _LENGTH <= len(data):
                end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
                if end > len(data):
                    break
                at = end
                count -= 1
        if data.count(_OK) != _IN_FLIGHT:
            raise BenchError(f"the broker rejected a message: {data[:500]!r}")


def measure(brokers: Several, connections: int, size: int, seconds: float) -> Rate:
    """Send to all brokers.

    Raises:
        BenchError: a broker rejected a message.
    """
    addresses = brokers.addresses
    senders = [Sender(addresses[number % len(addresses)], number, size) for number in range(connections)]
    stopped = threading.Event()
    with ThreadPoolExecutor(connections) as threads:
        running = [threads.submit(sender.run, stopped) for sender in senders]
        try:
            time.sleep(_WARM_S)
            begun, cpu, sent = time.monotonic(), cpu_seconds(brokers.pid), _sent(senders)
            time.sleep(seconds)
            took, cpu, sent = time.monotonic() - begun, cpu_seconds(brokers.pid) - cpu, _sent(senders) - sent
        finally:
            stopped.set()
        for each in running:
            each.result()
    stored = sum(map(log_end, addresses)) / _sent(senders)
    return Rate(sent / took, cpu / max(sent, 1) * 1e6, cpu / took, stored)


def _sent(senders: Sequence[Sender]) -> int:
    return sum(sender.sent for sender in senders)


def table(found: Mapping[int, Sequence[Rate]]) -> Iterator[str]:
    """Yield a Markdown table: the best rate of each number of brokers, and the least CPU time."""
    yield "| brokers | messages/s | CPU, µs a message | cores busy with brokers | bytes of log a message |"
    yield "|---:|---:|---:|---:|---:|"
    for brokers, rates in found.items():
        best = max(rates, key=lambda rate: rate.messages)
        cpu = min(rate.cpu for rate in rates)
        yield f"| {brokers} | {best.messages:,.0f} | {cpu:.1f} | {best.cores:.2f} | {best.stored:.0f} |"


def broker_processes(
    brokers: Annotated[str, typer.Option(metavar="A,B", help="Numbers of broker processes.")] = "1,2,4",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the best rate and the least CPU time count.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of each load, after a second of warm-up.")] = 4,
    connections: Annotated[int, typer.Option(min=1, help="Connections, shared between the brokers.")] = 4,
    size: Annotated[int, typer.Option(min=1, help="Bytes of a message.")] = 128,
) -> None:
    """Print rate and CPU time of sends to one, two and four brokers."""
    found: dict[int, list[Rate]] = defaultdict(list)
    for _ in range(rounds):
        for count in map(int, brokers.split(",")):
            with (
                tempfile.TemporaryDirectory(prefix="rocketbroker-bench-") as home,
                several(Path(home), count) as running,
            ):
                found[count].append(measure(running, max(connections, count), size, seconds))
    print(f"commit {commit()}\n")
    print("\n".join(table(found)))


_QUEUES = 4
_WINDOW = 64
_SETTLE_S = 1.0
_SUSPEND_MS = 600_000
_SPARE_FILES = 256

Figure = tuple[str, str]


def _topic(number: int) -> str:
    return f"Topic-{number:06}"


def _group(number: int) -> str:
    return f"Group-{number:06}"


def topic_frame(topic: int) -> bytes:
    """Return UPDATE_AND_CREATE_TOPIC."""
    queues = {"readQueueNums": _QUEUES, "writeQueueNums": _QUEUES}
    return frame(RequestCode.UPDATE_AND_CREATE_TOPIC, {**topic_fields(_topic(topic)), **queues})


def send_frame(topic: int, queue: int) -> bytes:
    """Return SEND_MESSAGE_V2 of a short message."""
    return frame(RequestCode.SEND_MESSAGE_V2, send_fields(_topic(topic), d=str(_QUEUES), e=str(queue)), body=b"x" * 128)


def group_frame(group: int) -> bytes:
    """Return UPDATE_AND_CREATE_SUBSCRIPTIONGROUP."""
    body = json.dumps({"groupName": _group(group)}).encode()
    return frame(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, {}, body=body)


def heartbeat_frame(client: int) -> bytes:
    """Return HEART_BEAT of a consumer."""
    data = {"clientID": f"client-{client}", "producerDataSet": [], "consumerDataSet": [consumer_data(_group(client))]}
    return frame(RequestCode.HEART_BEAT, {}, body=json.dumps(data).encode())


def commit_frame(group: int, topic: int, queue: int) -> bytes:
    """Return UPDATE_CONSUMER_OFFSET."""
    fields = {"consumerGroup": _group(group), "topic": _topic(topic), "queueId": queue, "commitOffset": 1}
    return frame(RequestCode.UPDATE_CONSUMER_OFFSET, fields)


def pull_frame(group: int, topic: int, queue: int, offset: int) -> bytes:
    """Return PULL_MESSAGE that the broker holds."""
    fields = {
        "consumerGroup": _group(group), "topic": _topic(topic), "queueId": queue, "queueOffset": offset,
        "maxMsgNums": 32, "sysFlag": FLAG_SUBSCRIPTION | FLAG_SUSPEND, "commitOffset": 0,
        "suspendTimeoutMillis": _SUSPEND_MS, "subscription": "*", "subVersion": 0, "expressionType": "TAG",
    }  # fmt: skip
    return frame(RequestCode.PULL_MESSAGE, fields, topic * _QUEUES + queue + 2)


def ask_all(client: RawClient, frames: Sequence[bytes]) -> None:
    """Send requests, some at a time, and wait for their answers.

    Raises:
        BenchError: the broker rejected one.
    """
    for start in range(0, len(frames), _WINDOW):
        some = frames[start : start + _WINDOW]
        client.send(b"".join(some))
        for _ in some:
            _accepted(client, 1)


def _accepted(client: RawClient, opaque: int) -> None:
    answer = client.answer(opaque)
    if answer.code != ResponseCode.SUCCESS:
        raise BenchError(f"the broker answered {answer.code}: {answer.remark}")


class Run:
    """The steps of a run on one broker."""

    def __init__(self, address: str, pid: int, connections: int, topics: int) -> None:
        self._address = address
        self._pid = pid
        self._connections = connections
        self._topics = topics
        self._clients: list[RawClient] = []
        self._ends: dict[tuple[int, int], int] = {}

    def step(self, name: str, count: int, work: Callable[[], None]) -> Figure:
        """Do a step and return the memory of each of the things that it made."""
        before = anonymous_mib(self._pid)
        begun, cpu = time.monotonic(), cpu_seconds(self._pid)
        work()
        seconds, cpu = time.monotonic() - begun, cpu_seconds(self._pid) - cpu
        time.sleep(_SETTLE_S)
        each = (anonymous_mib(self._pid) - before) * (1 << 20) / count
        return f"{name}, {count:,}", f"{each:,.0f} B and {cpu / count * 1e6:,.0f} µs of CPU each, {seconds:.1f} s"

    def figures(self, stack: ExitStack, seconds: float, wakes: int) -> Iterator[Figure]:
        """Do all steps."""
        client = stack.enter_context(RawClient(self._address))
        topics, members = range(self._topics), range(self._connections)
        queues = [(topic, queue) for topic in topics for queue in range(_QUEUES)]
        ask_all(client, [topic_frame(self._topics), *(send_frame(self._topics, queue) for queue in range(_QUEUES))])
        yield "memory at the start", f"{anonymous_mib(self._pid):.1f} MiB"
        yield "idle CPU at the start", self._idle(seconds)
        yield self.step("topics", len(topics), lambda: ask_all(client, list(map(topic_frame, topics))))
        sends = [send_frame(topic, queue) for topic, queue in queues]
        yield self.step("queues, with a message each", len(queues), lambda: ask_all(client, sends))
        yield self.step("consumer groups", len(members), lambda: ask_all(client, list(map(group_frame, members))))
        yield self.step("connections", len(members), lambda: self._connect(stack))
        yield self.step("consumers in a group", len(members), self._join)
        yield self.step("committed offsets", len(queues), lambda: self._commit(queues))
        self._ends = dict.fromkeys(queues, 1)
        yield self.step("held pulls", len(queues), lambda: self._pull(queues))
        yield "idle CPU with all of them", self._idle(seconds)
        yield "a held pull is answered after", self._wake(client, queues, wakes)
        yield "memory at the end", f"{anonymous_mib(self._pid):.1f} MiB"

    def _connect(self, stack: ExitStack) -> None:
        self._clients = [stack.enter_context(RawClient(self._address)) for _ in range(self._connections)]

    def _join(self) -> None:
        for number, client in enumerate(self._clients):
            client.send(heartbeat_frame(number))
        for client in self._clients:
            _accepted(client, 1)

    def _commit(self, queues: Sequence[tuple[int, int]]) -> None:
        for topic, queue in queues:
            member = topic % self._connections
            self._clients[member].send(commit_frame(member, topic, queue))
        for topic, _ in queues:
            _accepted(self._clients[topic % self._connections], 1)

    def _pull(self, queues: Sequence[tuple[int, int]]) -> None:
        for topic, queue in queues:
            member = topic % self._connections
            self._clients[member].send(pull_frame(member, topic, queue, self._ends[topic, queue]))
        # The broker has read all pulls once it has answered a later request of each connection.
        for number, client in enumerate(self._clients):
            client.send(heartbeat_frame(number))
        for client in self._clients:
            _accepted(client, 1)

    def _idle(self, seconds: float) -> str:
        cpu = cpu_seconds(self._pid)
        time.sleep(seconds)
        return f"{(cpu_seconds(self._pid) - cpu) / seconds * 100:.1f} % of a core"

    def _wake(self, sender: RawClient, queues: Sequence[tuple[int, int]], count: int) -> str:
        waits = []
        for topic, queue in random.choices(queues, k=count):
            member = topic % self._connections
            begun = time.monotonic()
            sender.send(send_frame(topic, queue))
            answer = self._clients[member].answer(topic * _QUEUES + queue + 2)
            waits.append(time.monotonic() - begun)
            if answer.code != ResponseCode.SUCCESS:
                raise BenchError(f"a held pull was answered {answer.code}: {answer.remark}")
            _accepted(sender, 1)
            self._ends[topic, queue] += 1
            self._clients[member].send(pull_frame(member, topic, queue, self._ends[topic, queue]))
        waits = [wait * 1000 for wait in waits]
        shares = ", ".join(f"p{share} {percentile(waits, share / 100):.2f}" for share in (50, 99))
        return f"least {min(waits):.2f}, {shares}, longest {max(waits):.2f} ms from before the send"


def _raise_open_files(connections: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + _SPARE_FILES
    if hard != resource.RLIM_INFINITY and wanted > hard:
        raise BenchError(
            f"{connections:,} connections need {wanted:,} open files, and the limit is {hard:,} (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


def broker_scale(
    connections: Annotated[int, typer.Option(min=1, help="Connections, one consumer each.")] = 5_000,
    topics: Annotated[int, typer.Option(min=1, help="Topics of four queues.")] = 5_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of the idle broker.")] = 10,
    wakes: Annotated[int, typer.Option(min=2, help="Messages that wake a held pull.")] = 300,
    folder: Folder = None,
) -> None:
    """Print memory, idle CPU and wake-up times of a broker with many connections, queues and held pulls."""
    print(f"commit {commit()}\n\n| figure | value |\n|---|---|")
    _raise_open_files(connections)
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketbroker-bench-", dir=folder)))
        broker = stack.enter_context(opened(home / "store", home, ["maxConnections=100000"]))
        run = Run(broker.address, broker.pid, connections, topics)
        for name, value in run.figures(stack, seconds, wakes):
            print(f"| {name} | {value} |", flush=True)
