"""One, two and four broker processes on this machine: messages a second of all together, and CPU time of each message.

    bench/run broker_processes [--brokers 1,2,4] [--rounds 3] [--seconds 4] [--connections 4] [--size 128]

Several brokers are those of ``mqbroker -c a -c b``. The connections, each with 64 sends in flight, are shared between
them. Requests are built once and answers only counted: this process takes less than a microsecond a message.
"""

import socket
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from bench.failures import failures_reported
from bench.machine import commit
from bench.measure import cpu_seconds
from bench.raw_load import LoadError, frame, log_end
from bench.servers import Several, several
from rocketbroker.codec.remoting.request_code import RequestCode
from tests.support.raw_requests import send_fields

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

_IN_FLIGHT = 64
_QUEUES = 8
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
        fields = [send_fields(f"Topic-{number}", d=str(_QUEUES), e=str(each % _QUEUES)) for each in range(_IN_FLIGHT)]
        self._frames = b"".join(
            frame(RequestCode.SEND_MESSAGE_V2, header, opaque, b"x" * size) for opaque, header in enumerate(fields, 1)
        )
        self.sent = 0

    def run(self, stopped: threading.Event) -> None:
        """Send.

        Raises:
            LoadError: the broker rejected a message or closed the connection.
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
                raise LoadError("the broker closed the connection")
            data += read
            while at + _LENGTH <= len(data):
                end = at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")
                if end > len(data):
                    break
                at = end
                count -= 1
        if data.count(_OK) != _IN_FLIGHT:
            raise LoadError(f"the broker rejected a message: {data[:500]!r}")


def measure(brokers: Several, connections: int, size: int, seconds: float) -> Rate:
    """Send to all brokers.

    Raises:
        LoadError: a broker rejected a message.
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


@app.command()
def broker_processes(
    brokers: Annotated[str, typer.Option(metavar="A,B", help="Numbers of broker processes.")] = "1,2,4",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds; the best rate and the least CPU time count.")] = 3,
    seconds: Annotated[float, typer.Option(min=0.5, help="Length of each load, after a second of warm-up.")] = 4,
    connections: Annotated[int, typer.Option(min=1, help="Connections, shared between the brokers.")] = 4,
    size: Annotated[int, typer.Option(min=1, help="Bytes of a message.")] = 128,
) -> None:
    """Print rate and CPU time of sends to one, two and four brokers."""
    found: dict[int, list[Rate]] = defaultdict(list)
    with failures_reported("broker_processes"):
        for _ in range(rounds):
            for count in map(int, brokers.split(",")):
                with (
                    tempfile.TemporaryDirectory(prefix="rocketbroker-bench-") as home,
                    several(Path(home), count) as running,
                ):
                    found[count].append(measure(running, max(connections, count), size, seconds))
    print(f"commit {commit()}\n")
    print("\n".join(table(found)))


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
