"""Latency of sends while expired CommitLog files are removed.

    bench/run cleaning [--segments 5] [--mib 1024] [--rate 2000] [--size 1024] [--seconds 5] [--set KEY=VALUE]

bench/README.md describes the steps.
"""

import asyncio
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from bench import raw_load
from bench.disk import room
from bench.failures import failures_reported
from bench.machine import commit
from bench.raw_load import LoadError
from bench.record_template import NUMBER, Messages
from bench.servers import ServerError, opened
from bench.steady_load import Latencies, SteadySender, latencies
from bench.store_generator import StoreGenerator
from rocketbroker.codec.remoting.request_code import RequestCode
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

TOPIC = "Cleaning"
OLD_TOPICS = ("OldA", "OldB")
_QUEUES = 4
# Long messages: a segment holds few of them and is written fast.
_OLD_BODY = NUMBER + b"x" * 16_000
_OLD_PROPERTIES = b"KEYS\x01k" + NUMBER + b"\x02"
_AGE_HOURS = 1000
_REMOVAL_LIMIT = 120  # seconds
_AFTER_REMOVAL = 1  # seconds in which blocks of the last file may still be given back
_BEFORE, _DURING, _AFTER = "before", "while files are removed", "after"

Figures = dict[str, Latencies]


@dataclass(frozen=True, slots=True)
class Options:
    """Number and size (bytes) of the removed files; ``seconds`` of sending before and after the removal."""

    segments: int
    file_size: int
    seconds: int
    properties: Sequence[str]


def generator_of(root: Path, segments: int, file_size: int) -> StoreGenerator:
    """Return the generator of a store with ``segments`` full log files and a hundred messages in the next one."""
    config = MessageStoreConfig(store_path_root_dir=str(root), mapped_file_size_commit_log=file_size)
    messages = Messages(OLD_TOPICS, _QUEUES, _OLD_BODY, _OLD_PROPERTIES, 0)
    per_file = StoreGenerator(config, messages, 1).per_file
    first = SystemClock().time_ms() - _AGE_HOURS * 3_600_000
    return StoreGenerator(config, replace(messages, first_timestamp=first), segments * per_file + 100)


def expire(made: StoreGenerator, segments: int) -> list[Path]:
    """Set the modification time of the first log files back beyond the retention time; return the files."""
    files = sorted(made.config.commit_log_dir.iterdir())[:segments]
    then = SystemClock().time_ms() / 1000 - _AGE_HOURS * 3600
    for file in files:
        os.utime(file, (then, then))
    return files


def other_hour() -> int:
    """Return an hour outside this run, so that no file is removed before the request."""
    return (time.localtime(SystemClock().time_ms() // 1000).tm_hour + 12) % 24


class Removal:
    """A request to remove files, and its end.

    Args:
        address: the broker's.
        files: the files that must disappear.
    """

    def __init__(self, address: str, files: Sequence[Path]) -> None:
        loop = asyncio.get_running_loop()
        self._files = files
        self._begun = time.monotonic()
        self._gone_at = 0.0
        self._asked = loop.run_in_executor(None, raw_load.ask, address, RequestCode.DELETE_EXPIRED_COMMITLOG)

    def is_over(self) -> bool:
        """Return true if the removal failed, or all files are gone and their blocks had time to be freed."""
        now = time.monotonic()
        if not self._gone_at and not any(file.exists() for file in self._files):
            self._gone_at = now
        refused = self._asked.done() and self._asked.exception() is not None
        late = now > self._begun + _REMOVAL_LIMIT
        return refused or late or (self._gone_at > 0 and now > self._gone_at + _AFTER_REMOVAL)

    async def seconds(self) -> float:
        """Return the seconds until the last file was gone.

        Raises:
            LoadError: the broker rejected the request, or did not remove all files.
        """
        await self._asked
        left = sum(file.exists() for file in self._files)
        if left:
            raise LoadError(f"{left} of {len(self._files)} files are still there after {_REMOVAL_LIMIT} s")
        return self._gone_at - self._begun


def _after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


async def measure(address: str, expired: Sequence[Path], sender: SteadySender, seconds: float) -> tuple[float, Figures]:
    """Send before, during and after the removal; return its duration in seconds and the latencies.

    Raises:
        LoadError: a send failed, or the files were not removed.
    """
    host, _, port = address.rpartition(":")
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: sender, host, int(port))
    try:
        await sender.run(_after(1))  # creates the topic and touches the first pages
        before = await sender.run(_after(seconds))
        removal = Removal(address, expired)
        during = await sender.run(removal.is_over)
        took = await removal.seconds()
        after = await sender.run(_after(seconds))
    finally:
        transport.close()
    return took, {_BEFORE: latencies(before), _DURING: latencies(during), _AFTER: latencies(after)}


def table(figures: Figures) -> Iterator[str]:
    """Yield a Markdown table with the latencies of each phase."""
    yield "| sends | count | p50 ms | p99 ms | longest ms |"
    yield "|---|---:|---:|---:|---:|"
    for when, found in figures.items():
        yield f"| {when} | {found.sends:,} | {found.p50:.2f} | {found.p99:.2f} | {found.longest:.2f} |"


def _run(home: Path, options: Options, sender: SteadySender) -> None:
    made = generator_of(home / "store", options.segments, options.file_size)
    if made.disk_bytes > room(home):
        raise ServerError(f"{home} has no room for {made.disk_bytes >> 20:,} MiB; free some space or use --dir")
    made.write()
    made.mark_clean()
    expired = expire(made, options.segments)
    settings = [
        f"deleteWhen={other_hour():02d}",
        "diskMaxUsedSpaceRatio=95",
        f"mappedFileSizeCommitLog={options.file_size}",
        *options.properties,
    ]
    with opened(home / "store", home, settings) as broker:
        took, figures = asyncio.run(measure(broker.address, expired, sender, options.seconds))
    print(f"{options.segments} files were gone {took:.2f} s after the request\n")
    print("\n".join(table(figures)))


@app.command()
def cleaning(
    segments: Annotated[int, typer.Option(min=1, max=60, help="Files to remove.")] = 5,
    mib: Annotated[int, typer.Option(min=16, max=1024, help="MiB of each file.")] = 1024,
    rate: Annotated[int, typer.Option(min=1, help="Messages a second.")] = 2000,
    size: Annotated[int, typer.Option(min=0, max=1 << 20, help="Bytes of each body.")] = 1024,
    seconds: Annotated[int, typer.Option(min=1, help="Seconds of sending before and after the removal.")] = 5,
    properties: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="A broker property; repeatable.")
    ] = None,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", exists=True, file_okay=False, resolve_path=True, help="Folder for the temporary store."),
    ] = None,
) -> None:
    """Measure sends while files are removed. Exit with status 1 if a send fails or a file stays."""
    print(f"commit {commit()}, {segments} files of {mib:,} MiB, {rate:,} sends a second of {size:,} B", flush=True)
    with TemporaryDirectory(prefix="rocketbroker-cleaning-", dir=folder) as home, failures_reported("cleaning"):
        options = Options(segments, mib << 20, seconds, properties or [])
        _run(Path(home), options, SteadySender(TOPIC, size, rate))


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
