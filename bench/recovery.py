"""Start time of our broker after a kill.

    bench/run recovery [--mib 1024] [--body 1024] [--known 0.5] [--rounds 3] [--no-index-known] [--cold] [--dir DIR]

bench/README.md describes the store.
"""

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer

from bench.disk import drop_from_page_cache, room
from bench.failures import failures_reported
from bench.machine import commit
from bench.raw_load import log_end
from bench.record_template import NUMBER, Messages
from bench.servers import ServerError, opened
from bench.store_generator import StoreGenerator
from rocketbroker.common.clock import SystemClock
from rocketbroker.common.config import MessageStoreConfig

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)

TOPICS = ("BenchA", "BenchB", "BenchC", "BenchD")
QUEUES = 4
PER_MS = 20
# Properties that the Java client and the broker set on a message with one key and one tag.
PROPERTIES = (
    b"KEYS\x01order-" + NUMBER + b"\x02UNIQ_KEY\x017F00000112671B28CDFA000" + NUMBER
    + b"\x02WAIT\x01true\x02TAGS\x01T\x02"
    b"MSG_REGION\x01DefaultRegion\x02TRACE_ON\x01true\x02CLUSTER\x01DefaultCluster\x02"
)  # fmt: skip
_LIMIT = 600  # seconds after which a start counts as failed


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the measurement; ``known`` is the share of the messages before the checkpoint."""

    rounds: int
    known: float
    index_known: bool
    cold: bool


@dataclass(frozen=True, slots=True)
class Start:
    """One start: wall and CPU seconds from exec to the first answer, and the broker's own report."""

    seconds: float
    cpu_seconds: float
    report: str


def body_of(size: int) -> bytes:
    """Return a body of ``size`` bytes, at least 9, that begins with the message's number."""
    return (NUMBER + b"abcdefghijklmnopqrstuvwxyz" * (size // 26 + 1))[:size]


def generator_of(root: Path, log_bytes: int, body: int) -> StoreGenerator:
    """Return the generator of a store with about ``log_bytes`` of messages, stored in the last minutes."""
    config = MessageStoreConfig(store_path_root_dir=str(root))
    count = _count(config, log_bytes, body)
    first = SystemClock().time_ms() - count // PER_MS - 60_000
    return StoreGenerator(config, _messages(body, first), count)


def _messages(body: int, first_timestamp: int) -> Messages:
    return Messages(TOPICS, QUEUES, body_of(body), PROPERTIES, first_timestamp, PER_MS)


def _count(config: MessageStoreConfig, log_bytes: int, body: int) -> int:
    one = StoreGenerator(config, _messages(body, 0), 1)
    files, rest = divmod(log_bytes, config.mapped_file_size_commit_log)
    return max(files * one.per_file + min(rest // one.template.size, one.per_file), 1)


def starts(made: StoreGenerator, home: Path, options: Options) -> Iterator[Start]:
    """Start the broker repeatedly on the store as left by a kill, and yield each start.

    Raises:
        ServerError: the broker did not start, or the log has the wrong end.
    """
    root = Path(made.config.store_path_root_dir)
    for _ in range(options.rounds):
        made.mark_crashed(options.known, index_known=options.index_known)
        if options.cold:
            drop_from_page_cache(root)
        with opened(root, home, limit=_LIMIT) as broker:
            _check_end(made, broker.address)
            found = [line for line in broker.out.read_text().splitlines() if "store opened" in line]
        yield Start(broker.seconds, broker.cpu_seconds, found[-1] if found else "the broker printed no report")


def _check_end(made: StoreGenerator, address: str) -> None:
    found = log_end(address)
    if found != made.end:
        raise ServerError(f"the log ends at {found} after recovery instead of {made.end}")


@app.command()
def recovery(
    mib: Annotated[int, typer.Option(min=1, help="MiB of messages in the log.")] = 1024,
    body: Annotated[int, typer.Option(min=9, max=4 << 20, help="Bytes of each body.")] = 1024,
    known: Annotated[float, typer.Option(min=0, max=1, help="Share of the messages before the checkpoint.")] = 0.5,
    rounds: Annotated[int, typer.Option(min=1, help="Number of starts.")] = 3,
    index_known: Annotated[
        bool, typer.Option(help="Let the checkpoint cover the index as well as log and queues.")
    ] = True,
    cold: Annotated[bool, typer.Option("--cold", help="Read the files from the disk at each start.")] = False,
    folder: Annotated[
        Path | None,
        typer.Option("--dir", exists=True, file_okay=False, resolve_path=True, help="Folder for the temporary store."),
    ] = None,
) -> None:
    """Measure starts after a kill. Exit with status 1 if the broker does not start with all messages."""
    with TemporaryDirectory(prefix="rocketbroker-recovery-", dir=folder) as made_in:
        home = Path(made_in)
        made = generator_of(home / "store", mib << 20, body)
        if made.disk_bytes > room(home):
            need = f"no room for {made.disk_bytes >> 20:,} MiB; free some space or use --dir"
            print(f"recovery: {home} has {need}", file=sys.stderr)
            raise typer.Exit(1)
        made.write()
        print(
            f"commit {commit()}, {made.count:,} messages of {made.template.size} B in {mib:,} MiB, "
            f"{known:.0%} before the checkpoint, index {'included' if index_known else 'not included'}"
        )
        seconds = []
        with failures_reported("recovery"):
            for start in starts(made, home, Options(rounds, known, index_known, cold)):
                seconds.append(start.seconds)
                print(f"start {start.seconds:.2f} s, CPU {start.cpu_seconds:.2f} s: {start.report}", flush=True)
    print(f"\nstart after kill, median of {rounds}: {median(seconds):.2f} s (least {min(seconds):.2f})")


def main() -> int:
    """Run the command and return its exit status."""
    app()
    return 0


if __name__ == "__main__":
    sys.exit(main())
