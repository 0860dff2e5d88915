"""Latency of sends while expired CommitLog files are removed.

    bench/run cleaning [--segments 5] [--mib 1024] [--rate 2000] [--size 1024] [--seconds 5] [--set KEY=VALUE]

bench/README.md describes the steps.
"""

import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from types import TracebackType
from typing import Annotated, Self

import typer

from bench import servers
from bench.harness import BenchError, Folder, Properties, Report, Row, Size, temporary
from bench.measure import latencies
from bench.servers import broker, frame
from bench.stores import NUMBER, Messages, check_room, count_for, fill
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.codec.remoting.response_code import ResponseCode
from rocketbroker.common.clock import SystemClock
from tests.support.raw_client import RawClient
from tests.support.raw_requests import send_fields

_TICK_S = 0.002
_ANSWER_LIMIT_S = 30
_TOPIC = "Cleaning"
_QUEUES = 4
_AGE_HOURS = 1000
# Long messages: a segment holds few of them and is written fast.
_OLD = Messages(
    NUMBER + b"x" * 16_000, b"KEYS\x01k" + NUMBER + b"\x02", ("OldA", "OldB"), age_ms=_AGE_HOURS * 3_600_000
)
_REMOVAL_LIMIT_S = 120
_AFTER_REMOVAL_S = 1  # blocks of the last file may still be given back
_COLUMNS = {
    "count": ("count", ",.0f"),
    "p50": ("p50 ms", ".2f"),
    "p99": ("p99 ms", ".2f"),
    "longest": ("longest ms", ".2f"),
}


class SteadySender:
    """Sends to one topic at a steady rate, whether answers come or not; a thread reads the answers."""

    def __init__(self, connection: socket.socket, size: int, rate: int) -> None:
        self._socket = connection
        self._client = RawClient(connection)
        self._body = b"x" * size
        self._rate = rate
        self._next = 0
        self._sent_at: dict[int, float] = {}
        self._taken: list[float] = []
        self._error = ""
        self._reader = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._reader.join()
        self._client.close()

    def _read(self) -> None:
        while (answer := self._client.read()) is not None:
            self._taken.append(perf_counter() - self._sent_at.pop(answer.header["opaque"]))
            if answer.code != ResponseCode.SUCCESS:
                self._error = self._error or f"the broker answered {answer.code}: {answer.remark}"
        self._error = self._error or "the broker closed the connection"

    def run(self, until: Callable[[], bool]) -> list[float]:
        """Send until a condition holds, wait for the answers and return their latencies in seconds.

        Raises:
            BenchError: a message was rejected, or not answered within 30 s.
        """
        first, begun, done = self._next, perf_counter(), len(self._taken)
        while not until() and not self._error:
            time.sleep(_TICK_S)
            self._send(first + int((perf_counter() - begun) * self._rate))
        deadline = perf_counter() + _ANSWER_LIMIT_S
        while self._sent_at and not self._error:
            if perf_counter() > deadline:
                self._error = f"{len(self._sent_at)} sends were not answered within {_ANSWER_LIMIT_S} s"
            time.sleep(_TICK_S)
        if self._error:
            raise BenchError(self._error)
        return self._taken[done:]

    def _send(self, until: int) -> None:
        numbers = range(self._next, until)
        queues = {"d": str(_QUEUES), "m": "false"}
        data = b"".join(
            frame(
                RequestCode.SEND_MESSAGE_V2, send_fields(_TOPIC, e=str(number % _QUEUES), **queues), number, self._body
            )
            for number in numbers
        )
        self._next = max(until, self._next)
        self._sent_at.update(dict.fromkeys(numbers, perf_counter()))
        try:
            self._client.send(data)
        except OSError as error:
            self._error = self._error or f"the broker closed the connection: {error}"


class Removal:
    """A request to remove files, and its end.

    Args:
        address: the broker's.
        files: the files that must disappear.
    """

    def __init__(self, address: str, files: Sequence[Path]) -> None:
        self._files = files
        self._begun = time.monotonic()
        self._gone_at = 0.0
        with ThreadPoolExecutor(1) as threads:
            self._asked = threads.submit(servers.ask, address, RequestCode.DELETE_EXPIRED_COMMITLOG)
            threads.shutdown(wait=False)

    def is_over(self) -> bool:
        """Return true if the removal failed, or all files are gone and their blocks had time to be freed."""
        now = time.monotonic()
        if not self._gone_at and not any(file.exists() for file in self._files):
            self._gone_at = now
        refused = self._asked.done() and self._asked.exception() is not None
        late = now > self._begun + _REMOVAL_LIMIT_S
        return refused or late or (self._gone_at > 0 and now > self._gone_at + _AFTER_REMOVAL_S)

    def seconds(self) -> float:
        """Return the seconds until the last file was gone.

        Raises:
            BenchError: the broker rejected the request, or did not remove all files.
        """
        self._asked.result()
        left = sum(file.exists() for file in self._files)
        if left:
            raise BenchError(f"{left} of {len(self._files)} files are still there after {_REMOVAL_LIMIT_S} s")
        return self._gone_at - self._begun


def expire(commit_log: Path, segments: int) -> list[Path]:
    """Set the modification time of the first log files back beyond the retention time; return the files."""
    files = sorted(commit_log.iterdir())[:segments]
    then = SystemClock().time_ms() / 1000 - _AGE_HOURS * 3600
    for file in files:
        os.utime(file, (then, then))
    return files


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def cleaning(
    segments: Annotated[int, typer.Option(min=1, max=60, help="Files to remove.")] = 5,
    mib: Annotated[int, typer.Option(min=16, max=1024, help="MiB of each file.")] = 1024,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 2000,
    size: Size = 1024,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of sending before and after the removal.")] = 5,
    properties: Properties = None,
    folder: Folder = None,
) -> None:
    """Measure sends while files are removed. Exit with status 1 if a send fails or a file stays."""
    count, file_size = count_for(segments * (mib << 20), _OLD, mib << 20) + 100, mib << 20
    # No file is removed before the request: the hour of removals is another one.
    hour = (time.localtime(SystemClock().time_ms() // 1000).tm_hour + 12) % 24
    settings = [f"deleteWhen={hour:02d}", "diskMaxUsedSpaceRatio=95", f"mappedFileSizeCommitLog={file_size}"]
    with temporary(folder) as home:
        check_room(home, count, _OLD)
        report = Report(1, segments=segments, mib=mib, rate=rate, size=size)
        made = fill(home / "store", count, _OLD, mapped_file_size_commit_log=file_size)
        expired = expire(made.config.commit_log_dir, segments)
        with broker(home, [*settings, *(properties or [])], store=made.root) as found:
            host, _, port = found.address.rpartition(":")
            with SteadySender(socket.create_connection((host, int(port))), size, rate) as sender:
                sender.run(_after(1))  # creates the topic and touches the first pages
                taken = {"before": sender.run(_after(seconds))}
                removal = Removal(found.address, expired)
                taken["while files are removed"] = sender.run(removal.is_over)
                gone = removal.seconds()
                taken["after"] = sender.run(_after(seconds))
    for name, each in taken.items():
        report.add(Row(1, name, "send", {"count": len(each), **latencies(each).ms()}))
    print(f"{segments} files were gone {gone:.2f} s after the request\n")
    print(report.table(["sends"], _COLUMNS))
    report.end()
