"""One broker with 5,000 connections, 20,000 queues and as many held pulls: memory of each, idle CPU, time to wake.

    bench/run broker_scale [--connections 5000] [--topics 5000] [--seconds 10] [--wakes 300]

Each topic has four queues with one message each. Each connection is a consumer in a group of its own that holds a pull
on each queue of its topics. Memory is the difference of the broker's anonymous memory before and after each step.
"""

import json
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from bench.failures import failures_reported
from bench.machine import commit
from bench.measure import anonymous_mib, cpu_seconds, percentile
from bench.raw_load import LoadError, frame
from bench.servers import opened
from rocketbroker.codec.remoting.headers.message import FLAG_SUBSCRIPTION, FLAG_SUSPEND
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from tests.support.raw_client import RawClient
from tests.support.raw_requests import consumer_data, send_fields, topic_fields

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

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
        LoadError: the broker rejected one.
    """
    for start in range(0, len(frames), _WINDOW):
        some = frames[start : start + _WINDOW]
        client.send(b"".join(some))
        for _ in some:
            _accepted(client, 1)


def _accepted(client: RawClient, opaque: int) -> None:
    answer = client.answer(opaque)
    if answer.code != ResponseCode.SUCCESS:
        raise LoadError(f"the broker answered {answer.code}: {answer.remark}")


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
                raise LoadError(f"a held pull was answered {answer.code}: {answer.remark}")
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
        raise LoadError(
            f"{connections:,} connections need {wanted:,} open files, and the limit is {hard:,} (ulimit -n)"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))


@app.command()
def broker_scale(
    connections: Annotated[int, typer.Option(min=1, help="Connections, one consumer each.")] = 5_000,
    topics: Annotated[int, typer.Option(min=1, help="Topics of four queues.")] = 5_000,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of the idle broker.")] = 10,
    wakes: Annotated[int, typer.Option(min=2, help="Messages that wake a held pull.")] = 300,
    folder: Annotated[Path | None, typer.Option("--dir", help="Parent of the temporary store.")] = None,
) -> None:
    """Print memory, idle CPU and wake-up times of a broker with many connections, queues and held pulls."""
    print(f"commit {commit()}\n\n| figure | value |\n|---|---|")
    with failures_reported("broker_scale"):
        _raise_open_files(connections)
        with ExitStack() as stack:
            home = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rocketbroker-bench-", dir=folder)))
            broker = stack.enter_context(opened(home / "store", home, ["maxConnections=100000"]))
            run = Run(broker.address, broker.pid, connections, topics)
            for name, value in run.figures(stack, seconds, wakes):
                print(f"| {name} | {value} |", flush=True)


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
